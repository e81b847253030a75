// The native face of a segment in one process: what each call promises and how it refuses; also waits, from several
// threads.
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "error.h"
#include "memory/versioned_segment.h"

using sinkflex::Error;
using sinkflex::Version;
using sinkflex::VersionedSegment;
using std::chrono::milliseconds;

namespace {

int number = 0;
bool all_good = true;

void check(bool good, const std::string& what) {
  all_good &= good;
  std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, what.c_str());
}

template <typename Call>
void refuses(const std::string& code, Call call, const std::string& what) {
  try {
    call();
    check(false, what + ": no error");
  } catch (const Error& error) {
    check(error.code == code, what + ": " + error.code);
  }
}

}  // namespace

int main() {
  std::printf("TAP version 14\n");
  auto segment = VersionedSegment::create({1000, 2, 3, 2});
  Version version;
  {
    VersionedSegment::Reader reader(segment);
    refuses("SINKFLEX_STORE_EMPTY", [&] { reader.pin(&version); }, "nothing to pin");
    check(!reader.is_current() && !reader.pinned(), "an empty row holds nothing");
  }
  const auto publish = [&](uint32_t lineage, uint32_t v) {
    auto writing = segment->begin_write({milliseconds(1000)});
    std::memset(writing.data(), static_cast<int>(v), 1000);
    writing.publish(lineage, v);
    check(writing.done(), "published " + std::to_string(lineage) + "." + std::to_string(v));
  };
  publish(0, 1);
  {
    VersionedSegment::Reader old(segment);
    const uint8_t* bytes = old.pin(&version);
    check(version == Version{0, 1, 0} && bytes[999] == 1 && old.is_current(), "pinned the newest");
    publish(0, 2);
    check(!old.is_current() && bytes[0] == 1, "a flip leaves the pin alone");
    VersionedSegment::Reader fresh(segment);
    check(*fresh.pin(&version) == 2, "the next pin takes the new one");
    publish(0, 3);
    check(segment->slots() == 3, "a slot was added");
    refuses("SINKFLEX_STORE_FULL", [&] { publish(0, 4); }, "both free slots are pinned");
    refuses("SINKFLEX_STORE_READERS", [&] { VersionedSegment::Reader third(segment); }, "the rows are taken");
    check(*old.pin(&version) == 3 && version.version == 3, "pinning again moves on");
    VersionedSegment::Reader moved = std::move(old);
    check(moved.is_current() && moved.segment() == segment, "a reader can be moved");
    publish(0, 4);
  }
  check(segment->pins().empty(), "readers give back what they hold");
  {
    auto writing = segment->begin_write();
    refuses("SINKFLEX_STORE_ORDER", [&] { writing.publish(0, 4); }, "a version twice");
    refuses("SINKFLEX_STORE_BUSY", [&] { segment->begin_write({milliseconds(30)}); }, "a second writer");
    std::atomic<bool> stop{true};
    refuses("SINKFLEX_STORE_STOPPED", [&] { segment->begin_write({milliseconds(30000), &stop}); }, "a stopped wait");
  }
  publish(1, 0);

  check(segment->wait_for_version({}, -1, {milliseconds(1)})->lineage == 1, "anything published");
  check(segment->wait_for_version(0, 4, {milliseconds(1)}).has_value(), "another lineage ends a wait");
  check(!segment->wait_for_version(1, 0, {milliseconds(5)}), "nothing newer until the timeout");
  std::optional<Version> seen;
  std::thread waiter([&] { seen = segment->wait_for_version(1, 1, {milliseconds(20000)}); });
  publish(1, 1);
  publish(1, 2);
  waiter.join();
  check(seen && seen->version == 2, "a wait passes over versions that it has");

  const auto opened = VersionedSegment::open(segment->address());
  VersionedSegment::Reader reader(opened);
  check(*reader.pin(&version) == 2 && opened->slot_bytes() == 1000 && opened->slots() == 3, "opened by address");
  check(segment->pins().size() == 1, "its pin is seen by all");
  auto gone = segment->address();
  gone.start_time++;
  refuses("SINKFLEX_STORE_GONE", [&] { VersionedSegment::open(gone); }, "another incarnation of the process");
  gone = segment->address();
  gone.nonce++;
  refuses("SINKFLEX_STORE_GONE", [&] { VersionedSegment::open(gone); }, "another object behind the descriptor");
  refuses(
      "SINKFLEX_BAD_ARGUMENT", [&] { VersionedSegment::create({1000, 3, 2, 1}); }, "fewer slots at most than at first");
  std::printf("1..%d\n", number);
  return all_good ? 0 : 1;
}
