// A failed system call as an Error: what was called, on what, errno in words.
#ifndef SINKFLEX_OS_FAILURE_H
#define SINKFLEX_OS_FAILURE_H

#include <cerrno>
#include <cstring>
#include <string>

#include "../error.h"

namespace sinkflex::os {

inline Error failure(const std::string& what, int error = errno) {
  return Error("SINKFLEX_OS_FAILED",
               what + " failed: " + std::strerror(error) + " (errno " + std::to_string(error) + ")");
}

}  // namespace sinkflex::os

#endif
