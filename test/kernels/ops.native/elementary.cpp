// exp and log of the operators (the portable copy; the others agree bit for bit): error in units in the last place, and
// the edges.
#include "../../../kernels/ops/elementary.h"

#include "harness.h"

namespace {
double ulps(float got, double exact) {
  const float near = (float)exact;
  const double unit = std::fabs((double)std::nextafter(near, INFINITY) - (double)near);
  return std::fabs((double)got - exact) / unit;
}
}  // namespace

void test_elementary() {
  section("exp and log");
  using sfx_portable::exp1;
  using sfx_portable::log1;
  double worst_exp = 0, worst_log = 0;
  bool same = true;
  for (double x = -86.4; x < 88.7; x += 0.00713) {
    worst_exp = std::max(worst_exp, ulps(exp1((float)x), std::exp((double)(float)x)));
    if (x <= 0)
      same = same && exp1((float)x) == sfx_portable::first_lane(sfx_portable::exp_down(sfx_portable::set1((float)x)));
  }
  for (double x = 1e-38; x < 3e38; x *= 1.00371)
    worst_log = std::max(worst_log, ulps(log1((float)x), std::log((double)(float)x)));
  check(worst_exp < 1.5, "exp: " + std::to_string(worst_exp) + " ulp");
  check(worst_log < 2, "log: " + std::to_string(worst_log) + " ulp");
  check(same, "exp_down is exp for x <= 0");
  check(exp1(0) == 1 && exp1(-INFINITY) == 0 && exp1(-1000) == 0 && exp1(INFINITY) == INFINITY && exp1(100) == INFINITY,
        "exp at the edges");
  check(exp1(88.72f) > 3.3e38f && std::isfinite(exp1(88.72f)) && std::isnan(exp1(NAN)), "exp near overflow, and NaN");
  check(log1(1) == 0 && log1(0) == -INFINITY && log1(INFINITY) == INFINITY && std::isnan(log1(-1)) &&
            std::isnan(log1(NAN)),
        "log at the edges");
  check(std::fabs(log1(1e-42f) - std::log((double)1e-42f)) < 1e-4, "log of a subnormal");
}
