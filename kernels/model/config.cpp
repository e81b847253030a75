#include "config.h"

#include <algorithm>
#include <cmath>

namespace sinkflex {

namespace {
constexpr double kPi = 3.14159265358979323846;

// The (fractional) pair index whose wavelength makes `rotations` turns within the original context.
double correction_index(const RopeOptions& o, int64_t head_dim, double rotations) {
  return static_cast<double>(head_dim) * std::log(o.original_positions / (rotations * 2 * kPi)) /
         (2 * std::log(o.theta));
}
// Llama 3: wavelengths longer than the original context are interpolated, short ones kept, those between blended.
double llama3_frequency(const RopeOptions& o, double f) {
  const double turns = o.original_positions * f / (2 * kPi);  // original context / wavelength
  if (turns < o.low_frequency) return f / o.factor;
  if (turns > o.high_frequency) return f;
  const double t = (turns - o.low_frequency) / (o.high_frequency - o.low_frequency);
  return f * ((1 - t) / o.factor + t);
}
}  // namespace

std::vector<double> inverse_frequencies(const RopeOptions& o, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  std::vector<double> inverse(static_cast<size_t>(half));
  for (int64_t j = 0; j < half; ++j)
    inverse[static_cast<size_t>(j)] = std::pow(o.theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
  if (o.kind == RopeKind::llama3)
    for (double& f : inverse) f = llama3_frequency(o, f);
  if (o.kind != RopeKind::yarn) return inverse;

  double low = correction_index(o, head_dim, o.beta_fast), high = correction_index(o, head_dim, o.beta_slow);
  if (o.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;
  for (int64_t j = 0; j < half; ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    double& f = inverse[static_cast<size_t>(j)];
    f = f / o.factor * ramp + f * (1 - ramp);
  }
  return inverse;
}

void fill_rotary_tables(const RopeOptions& o, int64_t head_dim, int64_t from, int64_t to, float* cosine, float* sine) {
  const std::vector<double> inverse = inverse_frequencies(o, head_dim);
  const int64_t half = head_dim / 2;
  for (int64_t p = from; p < to; ++p) {
    for (int64_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(p) * inverse[static_cast<size_t>(j)];
      cosine[p * half + j] = static_cast<float>(std::cos(angle) * o.attention_factor);
      sine[p * half + j] = static_cast<float>(std::sin(angle) * o.attention_factor);
    }
  }
}

}  // namespace sinkflex
