// The one exception type of the native code: a stable SINKFLEX_ code and a message. The glue turns it into a JavaScript
// error.
#ifndef SINKFLEX_ERROR_H
#define SINKFLEX_ERROR_H

#include <stdexcept>
#include <string>

namespace sinkflex {

struct Error : std::runtime_error {
  std::string code;
  Error(std::string code_, const std::string& message) : std::runtime_error(message), code(std::move(code_)) {}
};

}  // namespace sinkflex
#endif
