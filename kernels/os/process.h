// Processes by {pid, start time}: who is alive, who is provably dead, and how to die with one's parent. No policy.
#ifndef SINKFLEX_OS_PROCESS_H
#define SINKFLEX_OS_PROCESS_H

#include <cstdint>
#include <optional>

namespace sinkflex::os {

struct ProcessStatus {
  char state;           // as in /proc/<pid>/stat: R S D T t Z X I (macOS: R S D T Z)
  int32_t parent;       // pid
  int32_t threads;      // 0 where unknown
  uint64_t start_time;  // Linux: clock ticks since boot; macOS: microseconds since 1970. Only for comparing
};

// Empty: no such process. A process that may not be looked at throws SINKFLEX_OS_FAILED.
std::optional<ProcessStatus> process_status(int32_t pid);

// True only when no thread of that incarnation of `pid` can run any more: no such process, another start time, or a
// zombie without threads left. (A killed process is a zombie for a moment while its other threads still finish an
// instruction or two.)
bool proven_dead(int32_t pid, uint64_t start_time);

// One process's incarnation in a word that can be compared and swapped: pid in 22 bits (Linux's largest), start time
// in 42. Never 0.
using Identity = uint64_t;
Identity own_identity();
Identity make_identity(int32_t pid, uint64_t start_time);
int32_t identity_pid(Identity identity);
bool proven_dead(Identity identity);
uint64_t own_start_time();

// The kernel sends SIGKILL to this process when its parent dies (prctl PDEATHSIG; a kqueue watcher on macOS). Main
// thread only: the setting belongs to the calling thread. On Linux the signal comes when the parent THREAD that forked
// exits: fork from a main thread. SINKFLEX_OS_PARENT_GONE when the parent is not `expected_parent` any more: it died
// before this call.
void die_with_parent(int32_t expected_parent);

// Leaves the terminal's session and process group, so that Ctrl-C, Ctrl-Z and hang-ups reach only the agent, which then
// ends its workers in order. setsid rather than setpgid: a background group of the same session would still be stopped
// by SIGTTOU when it writes to a terminal with `tostop`. Already a group leader: nothing to leave.
void leave_process_group();

struct PeerCredentials {
  int32_t pid;
  uint32_t uid;
  uint32_t gid;
};
PeerCredentials peer_credentials(int fd);  // of a connected UNIX socket

}  // namespace sinkflex::os

#endif
