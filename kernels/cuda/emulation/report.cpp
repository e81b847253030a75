// What a kernel did wrong: the first few findings of a launch, each with kernel, block, thread and, where addr2line is
// there, the line.
#include <dlfcn.h>
#include <stdio.h>

#include <string>
#include <vector>

#include "launch.h"
#include "machine.h"

namespace emulation {

namespace {

constexpr size_t kMost = 4;
std::vector<std::string> found;
std::string text;

std::string line_of(const void* code) {
  Dl_info info;
  if (!code || !dladdr(code, &info) || !info.dli_fname) return "";
  char command[512], line[256] = "";
  snprintf(command, sizeof command, "addr2line -s -e '%s' 0x%zx 2>/dev/null", info.dli_fname,
           (size_t)((const char*)code - (const char*)info.dli_fbase) - 1);
  if (FILE* pipe = popen(command, "r")) {
    if (!fgets(line, sizeof line, pipe)) line[0] = 0;
    pclose(pipe);
  }
  std::string at = line;
  while (!at.empty() && (at.back() == '\n' || at.back() == ' ')) at.pop_back();
  return at.empty() || at[0] == '?' ? "" : " (" + at + ")";
}

}  // namespace

std::string where(int thread) {
  const std::string block =
      std::to_string(place.block.x) + "," + std::to_string(place.block.y) + "," + std::to_string(place.block.z);
  return std::string(machine.kernel) + ", block (" + block + ")" +
         (thread >= 0 ? ", thread " + std::to_string(thread) : "");
}

void report(const std::string& what, const void* code) {
  const Aside aside;
  if (found.size() < kMost) found.push_back(where(machine.current) + ": " + what + line_of(code));
  if (found.size() >= kMost || what.rfind("deadlock", 0) == 0 || what.rfind("divergence", 0) == 0) abandon();
}

void begin_reports() {
  found.clear();
  text.clear();
}
bool any_report() { return !found.empty(); }

const char* launch_problem() {
  text.clear();
  for (const std::string& f : found) text += (text.empty() ? "" : "\n") + f;
  return text.c_str();
}

}  // namespace emulation
