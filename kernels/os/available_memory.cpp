// available_memory(): the machine's free memory bounded by the memory control groups (v1 and v2) that this process is
// in.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "shared_memory.h"

#ifndef __linux__
#include <mach/mach.h>
#include <unistd.h>
#endif

namespace sinkflex::os {

#ifdef __linux__
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// A file that holds one number; "max" and missing files are unlimited.
uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : kUnlimited;
}

// "key value" or "key: value kB" lines.
uint64_t field_of(const std::string& path, const std::string& key, uint64_t fallback) {
  std::ifstream file(path);
  std::string name;
  uint64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return fallback;
}

// What one group leaves: limit - (usage - file pages that can be dropped).
uint64_t left_in(const std::string& limit_path, const std::string& usage_path, const std::string& stat_path,
                 const char* droppable) {
  const uint64_t limit = number_in(limit_path);
  if (limit >= (uint64_t{1} << 62)) return kUnlimited;  // v1 writes "no limit" as a huge number
  const uint64_t usage = number_in(usage_path);
  if (usage == kUnlimited) return kUnlimited;
  const uint64_t held = usage - std::min(usage, field_of(stat_path, droppable, 0));
  return limit - std::min(limit, held);
}

}  // namespace

uint64_t available_memory() {
  const uint64_t kilobytes = field_of("/proc/meminfo", "MemAvailable:", kUnlimited);
  uint64_t available = kilobytes == kUnlimited ? kUnlimited : kilobytes * 1024;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;  // "id:controllers:path"; v2 has no controllers
  while (std::getline(groups, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const std::string base = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    // A limit of any group above counts too. Inside a container the path may not exist as seen from here: those files
    // are missing.
    for (std::string path = line.substr(second + 1);; path.resize(path.find_last_of('/'))) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      const std::string folder = base + path + "/";
      available = std::min(available, v2 ? left_in(folder + "memory.max", folder + "memory.current",
                                                   folder + "memory.stat", "inactive_file")
                                         : left_in(folder + "memory.limit_in_bytes", folder + "memory.usage_in_bytes",
                                                   folder + "memory.stat", "total_inactive_file"));
      if (path.empty() || path.find('/') == std::string::npos) break;
    }
  }
  return available;
}
#else
uint64_t available_memory() {
  vm_statistics64_data_t stats{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (host_statistics64(mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&stats), &count) !=
      KERN_SUCCESS) {
    return std::numeric_limits<uint64_t>::max();
  }
  return (static_cast<uint64_t>(stats.free_count) + stats.inactive_count + stats.purgeable_count) *
         static_cast<uint64_t>(getpagesize());
}
#endif

}  // namespace sinkflex::os
