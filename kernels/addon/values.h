// Reading arguments: every number that crosses into native code is checked to be an integer in range.
#ifndef SINKFLEX_ADDON_VALUES_H
#define SINKFLEX_ADDON_VALUES_H

#include <napi.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "addon.h"

namespace sinkflex {

inline uint64_t checked_integer(const Napi::Value& value, const std::string& name, uint64_t low, uint64_t high) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : std::nan("");
  if (!(number >= static_cast<double>(low) && number <= static_cast<double>(high)) || number != std::floor(number)) {
    throw Error("SINKFLEX_BAD_ARGUMENT", name + " must be an integer from " + std::to_string(low) + " to " +
                                             std::to_string(high) + "; got " +
                                             static_cast<std::string>(value.ToString()));
  }
  return static_cast<uint64_t>(number);
}

inline uint64_t integer_argument(const Napi::CallbackInfo& info, size_t index, const char* name, uint64_t low,
                                 uint64_t high) {
  return checked_integer(info[index], name, low, high);
}

inline uint64_t integer_property(const Napi::Object& object, const char* name, uint64_t low, uint64_t high) {
  return checked_integer(object.Get(name), name, low, high);
}

// 64-bit numbers travel as strings of digits.
inline uint64_t checked_unsigned(const Napi::Value& value, const std::string& name, int base) {
  const std::string text = value.IsString() ? static_cast<std::string>(value.As<Napi::String>()) : "";
  char* end = nullptr;
  errno = 0;
  const uint64_t number = std::strtoull(text.c_str(), &end, base);
  if (text.empty() || text[0] == '-' || *end != '\0' || errno != 0) {
    throw Error("SINKFLEX_BAD_ARGUMENT",
                name + " must be a string of base " + std::to_string(base) + " digits; got \"" + text + "\"");
  }
  return number;
}

inline uint64_t unsigned_property(const Napi::Object& object, const char* name, int base) {
  return checked_unsigned(object.Get(name), name, base);
}

inline Napi::Object object_argument(const Napi::CallbackInfo& info, size_t index) {
  if (!info[index].IsObject()) throw Error("SINKFLEX_BAD_ARGUMENT", "expected an object");
  return info[index].As<Napi::Object>();
}

}  // namespace sinkflex

#endif
