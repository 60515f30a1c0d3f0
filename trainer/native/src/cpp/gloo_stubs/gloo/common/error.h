#pragma once
// c10d's Gloo header includes this file and uses nothing of it; Gloo's own headers are not part of libtorch's distribution.
