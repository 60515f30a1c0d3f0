#pragma once
// Declarations that c10d's Gloo header needs; Gloo's own headers are not part of libtorch's distribution. Objects of these classes are
// made and used inside libtorch only.
#include <chrono>

namespace gloo {
namespace transport {
class Device;
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};
}  // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds);
};
}  // namespace gloo
