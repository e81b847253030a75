// The one exception type of the native floor: a stable code, and a message that says what failed, on what, and what to do.
// It never crosses into Node: addon glue turns it into a JavaScript error with the same code (addon/guard.h).
#ifndef SINKFLEX_OS_ERROR_H
#define SINKFLEX_OS_ERROR_H

#include <stdexcept>
#include <string>
#include <utility>

namespace sinkflex {

class Error : public std::runtime_error {
 public:
  Error(std::string code, const std::string& message) : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const noexcept { return code_; }  // "SINKFLEX_..."

 private:
  std::string code_;
};

}  // namespace sinkflex

#endif
