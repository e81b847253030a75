// Reading JavaScript arguments with messages that name the argument.
#ifndef SINKFLEX_ADDON_ARGUMENTS_H
#define SINKFLEX_ADDON_ARGUMENTS_H

#include <napi.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "../error.h"

namespace sinkflex {

inline Error bad_argument(const std::string& name, const std::string& expected) {
  return Error("SINKFLEX_BAD_ARGUMENT", name + " must be " + expected);
}

inline double number_of(const Napi::Value& value, const std::string& name) {
  if (!value.IsNumber()) throw bad_argument(name, "a number");
  return value.As<Napi::Number>().DoubleValue();
}

inline int64_t integer_of(const Napi::Value& value, const std::string& name, int64_t low, int64_t high) {
  const double d = number_of(value, name);
  if (!(d >= static_cast<double>(low) && d <= static_cast<double>(high)) || d != std::floor(d))
    throw bad_argument(name, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return static_cast<int64_t>(d);
}

inline bool boolean_of(const Napi::Value& value, const std::string& name) {
  if (!value.IsBoolean()) throw bad_argument(name, "a boolean");
  return value.As<Napi::Boolean>().Value();
}

inline std::string string_of(const Napi::Value& value, const std::string& name) {
  if (!value.IsString()) throw bad_argument(name, "a string");
  return value.As<Napi::String>().Utf8Value();
}

inline Napi::Object object_of(const Napi::Value& value, const std::string& name) {
  if (!value.IsObject()) throw bad_argument(name, "an object");
  return value.As<Napi::Object>();
}

// The elements of a typed array: valid while the array lives and is not detached.
template <typename T>
struct Span {
  T* data;
  size_t size;
};

template <typename T>
napi_typedarray_type array_type();
template <>
inline napi_typedarray_type array_type<float>() {
  return napi_float32_array;
}
template <>
inline napi_typedarray_type array_type<int32_t>() {
  return napi_int32_array;
}
template <>
inline napi_typedarray_type array_type<uint16_t>() {
  return napi_uint16_array;
}
template <>
inline napi_typedarray_type array_type<uint8_t>() {
  return napi_uint8_array;
}
template <>
inline napi_typedarray_type array_type<double>() {
  return napi_float64_array;
}

template <typename T>
Span<T> array_of(const Napi::Value& value, const std::string& name, const char* expected) {
  if (!value.IsTypedArray()) throw bad_argument(name, expected);
  auto array = value.As<Napi::TypedArrayOf<T>>();
  if (array.TypedArrayType() != array_type<T>()) throw bad_argument(name, expected);
  return {array.Data(), array.ElementLength()};
}

inline Span<int32_t> int32s_of(const Napi::Value& v, const std::string& name) {
  return array_of<int32_t>(v, name, "an Int32Array");
}
inline Span<float> floats_of(const Napi::Value& v, const std::string& name) {
  return array_of<float>(v, name, "a Float32Array");
}
inline Span<uint8_t> bytes_of(const Napi::Value& v, const std::string& name) {
  return array_of<uint8_t>(v, name, "a Uint8Array");
}
inline Span<double> doubles_of(const Napi::Value& v, const std::string& name) {
  return array_of<double>(v, name, "a Float64Array");
}

}  // namespace sinkflex
#endif
