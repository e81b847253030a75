#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "failure.h"

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#else
#include <pthread.h>
#include <sys/event.h>
#include <sys/sysctl.h>
#include <sys/ucred.h>
#include <sys/un.h>

#include <thread>
#endif

namespace sinkflex::os {
namespace {

constexpr int kStartBits = 42;
constexpr uint64_t kStartMask = (uint64_t{1} << kStartBits) - 1;

bool is_main_thread() {
#ifdef __linux__
  return syscall(SYS_gettid) == getpid();
#else
  return pthread_main_np() != 0;
#endif
}

}  // namespace

#ifdef __linux__
std::optional<ProcessStatus> process_status(int32_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ESRCH) return std::nullopt;
    throw failure(std::string("open ") + path);
  }
  char text[1024];
  const ssize_t size = read(fd, text, sizeof text - 1);
  const int error = errno;
  close(fd);
  if (size < 0) {
    if (error == ESRCH) return std::nullopt;  // it died between open and read
    throw failure(std::string("read ") + path, error);
  }
  text[size] = '\0';
  // "pid (name) S ppid ...": the name may hold blanks and brackets, so fields count from the last bracket. state is
  // field 3, ppid 4, num_threads 20, starttime 22 (proc(5)).
  const char* rest = std::strrchr(text, ')');
  ProcessStatus status{};
  long threads = 0;
  unsigned long long start = 0;
  if (rest == nullptr ||
      std::sscanf(rest + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
                  &status.state, &status.parent, &threads, &start) != 4) {
    throw Error("SINKFLEX_OS_FAILED", std::string(path) + " is not in the form of proc(5): " + text);
  }
  status.threads = static_cast<int32_t>(threads);
  status.start_time = start;
  return status;
}
#else
std::optional<ProcessStatus> process_status(int32_t pid) {
  int name[4] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, pid};
  kinfo_proc info{};
  size_t size = sizeof info;
  if (sysctl(name, 4, &info, &size, nullptr, 0) != 0) throw failure("sysctl KERN_PROC_PID");
  if (size == 0) return std::nullopt;
  ProcessStatus status{};
  static const char states[] = "?IRSTZ";  // SIDL SRUN SSLEEP SSTOP SZOMB
  status.state = info.kp_proc.p_stat <= 5 ? states[static_cast<int>(info.kp_proc.p_stat)] : '?';
  status.parent = info.kp_eproc.e_ppid;
  const timeval started = info.kp_proc.p_starttime;
  status.start_time = static_cast<uint64_t>(started.tv_sec) * 1000000 + static_cast<uint64_t>(started.tv_usec);
  return status;
}
#endif

bool proven_dead(int32_t pid, uint64_t start_time) { return proven_dead(make_identity(pid, start_time)); }

bool proven_dead(Identity identity) {
  if (identity == own_identity()) return false;
  std::optional<ProcessStatus> status;
  try {
    status = process_status(identity_pid(identity));
  } catch (const Error&) {
    return false;  // hidden is not dead
  }
  if (!status) return true;
  if (make_identity(identity_pid(identity), status->start_time) != identity) return true;
  return (status->state == 'Z' || status->state == 'X') && status->threads <= 1;
}

Identity make_identity(int32_t pid, uint64_t start_time) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(pid)) << kStartBits) | (start_time & kStartMask);
}

int32_t identity_pid(Identity identity) { return static_cast<int32_t>(identity >> kStartBits); }

uint64_t own_start_time() {
  // Cached by pid: a plain fork() (native tests) is another process.
  static std::atomic<int32_t> cached_pid{0};
  static std::atomic<uint64_t> cached{0};
  const int32_t pid = getpid();
  if (cached_pid.load(std::memory_order_acquire) != pid) {
    const auto status = process_status(pid);
    if (!status) throw Error("SINKFLEX_OS_FAILED", "this process does not see itself; is /proc mounted?");
    cached.store(status->start_time, std::memory_order_relaxed);
    cached_pid.store(pid, std::memory_order_release);
  }
  return cached.load(std::memory_order_relaxed);
}

Identity own_identity() { return make_identity(getpid(), own_start_time()); }

void die_with_parent(int32_t expected_parent) {
  if (!is_main_thread()) {
    throw Error("SINKFLEX_BAD_ARGUMENT",
                "dieWithParent belongs to the process: call it from the main thread, not from a worker");
  }
#ifdef __linux__
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) throw failure("prctl PR_SET_PDEATHSIG");
#else
  const int queue = kqueue();
  struct kevent change;
  EV_SET(&change, expected_parent, EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0, nullptr);
  if (queue < 0 || kevent(queue, &change, 1, nullptr, 0, nullptr) != 0) {
    if (queue >= 0) close(queue);
    throw Error("SINKFLEX_OS_PARENT_GONE", "the parent process " + std::to_string(expected_parent) + " is gone");
  }
  std::thread([queue] {
    struct kevent event;
    while (kevent(queue, nullptr, 0, &event, 1, nullptr) < 0 && errno == EINTR) {
    }
    kill(getpid(), SIGKILL);
  }).detach();
#endif
  // The parent may have died before the line above: then nothing will ever come.
  if (getppid() != expected_parent) {
    throw Error("SINKFLEX_OS_PARENT_GONE", "the parent of process " + std::to_string(getpid()) + " is " +
                                               std::to_string(getppid()) + ", not " + std::to_string(expected_parent) +
                                               ": it died, or another process started this one; exit");
  }
}

void leave_process_group() {
  if (setsid() < 0 && errno != EPERM) throw failure("setsid");
}

PeerCredentials peer_credentials(int fd) {
#ifdef __linux__
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    throw failure("getsockopt SO_PEERCRED on descriptor " + std::to_string(fd));
  }
  return {credentials.pid, credentials.uid, credentials.gid};
#else
  pid_t pid = 0;
  socklen_t size = sizeof pid;
  uid_t uid = 0;
  gid_t gid = 0;
  if (getsockopt(fd, SOL_LOCAL, LOCAL_PEERPID, &pid, &size) != 0 || getpeereid(fd, &uid, &gid) != 0) {
    throw failure("reading the peer credentials of descriptor " + std::to_string(fd));
  }
  return {pid, uid, gid};
#endif
}

}  // namespace sinkflex::os
