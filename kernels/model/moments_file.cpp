#include "moments_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sinkflex {

namespace {

[[noreturn]] void fail(const char* call, const std::string& path) {
  throw Error("SINKFLEX_OS_FAILED", std::string(call) + " " + path + ": " + std::strerror(errno));
}

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail("open", path);
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(const void* data, int64_t bytes) {
    const char* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_, p, static_cast<size_t>(bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write", path_);
      p += n;
      bytes -= n;
    }
  }
  void read_at(void* data, int64_t bytes, int64_t offset) {
    char* p = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::pread(fd_, p, static_cast<size_t>(bytes), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("read", path_);
      if (n == 0) throw Error("SINKFLEX_CHECKPOINT_CORRUPT", path_ + " ends in the middle of a tensor");
      p += n;
      bytes -= n;
      offset += n;
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) fail("fsync", path_);
  }

 private:
  std::string path_;
  int fd_;
};

}  // namespace

void write_moments(const std::string& path, const std::string& header, const uint8_t* block, int64_t bytes,
                   int64_t step) {
  const std::string part = path + ".part-" + std::to_string(::getpid());
  try {
    File file(part, O_WRONLY | O_CREAT | O_TRUNC);
    file.write(header.data(), static_cast<int64_t>(header.size()));
    file.write(block, bytes);
    file.write(&step, sizeof step);
    file.sync();
  } catch (...) {
    ::unlink(part.c_str());
    throw;
  }
  if (std::rename(part.c_str(), path.c_str()) != 0) fail("rename", part);
  const size_t slash = path.rfind('/');
  File(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash), O_RDONLY | O_DIRECTORY).sync();
}

void read_moments(const std::string& path, const std::vector<MomentPiece>& pieces, uint8_t* block, int64_t bytes) {
  File file(path, O_RDONLY);
  for (const MomentPiece& piece : pieces) {
    if (piece.to < 0 || piece.bytes < 0 || piece.to + piece.bytes > bytes)
      throw Error("SINKFLEX_INTERNAL", "a piece of the moments lies outside their block");
    file.read_at(block + piece.to, piece.bytes, piece.from);
  }
}

}  // namespace sinkflex
