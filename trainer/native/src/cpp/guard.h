// How the shim's functions report faults: nullptr is success, anything else a message that the caller frees.
#pragma once

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <exception>

namespace napmem {

// Only strdup allocates here, so that a message can also be made when memory is short; it never returns nullptr.
inline char* message_of(const char* text) {
  char* copy = strdup(text);
  if (copy == nullptr) std::abort();
  return copy;
}

template <typename Body>
char* guarded(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    // Without the C++ backtrace, which tells a user nothing.
    return message_of(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return message_of(error.what());
  } catch (...) {
    return message_of("an exception of unknown type");
  }
}

}  // namespace napmem
