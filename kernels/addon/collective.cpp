// JavaScript's CollectiveGroup and CollectiveMember. kernels/collective.ts is the typed face: it keeps operations of a
// member in a row, since a member does one at a time, and makes errors of what operations resolve to.
#include "../memory/collective.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "addon.h"
#include "arguments.h"
#include "native_task.h"
#include "values.h"

namespace sinkflex {
namespace {

CollectiveAddress address_of(const Napi::Object& o) {
  CollectiveAddress address;
  address.pid = static_cast<int32_t>(integer_property(o, "pid", 1, INT32_MAX));
  address.start_time = unsigned_property(o, "startTime", 10);
  address.fd = static_cast<int32_t>(integer_property(o, "fd", 0, INT32_MAX));
  address.nonce = unsigned_property(o, "nonce", 16);
  return address;
}

class GroupWrap : public Napi::ObjectWrap<GroupWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "CollectiveGroup",
                       {InstanceMethod<&GroupWrap::address>("address"), InstanceMethod<&GroupWrap::settled>("settled"),
                        InstanceMethod<&GroupWrap::close>("close")});
  }

  // new CollectiveGroup(members, chunkBytes)
  explicit GroupWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    guard(info.Env(), [&] {
      const auto members = static_cast<uint32_t>(integer_argument(info, 0, "members", 1, kMemberLimit));
      group_ = CollectiveGroup::create(members, integer_argument(info, 1, "chunkBytes", 4096, uint64_t{1} << 30));
    });
  }

 private:
  Napi::Value address(const Napi::CallbackInfo& info) {
    const CollectiveAddress& address = group_->address();
    char nonce[17];
    std::snprintf(nonce, sizeof nonce, "%016llx", static_cast<unsigned long long>(address.nonce));
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("pid", address.pid);
    object.Set("startTime", std::to_string(address.start_time));
    object.Set("fd", address.fd);
    object.Set("nonce", nonce);
    return object;
  }
  Napi::Value settled(const Napi::CallbackInfo& info) {
    return Napi::Boolean::New(info.Env(), group_ == nullptr || group_->settled());
  }
  void close(const Napi::CallbackInfo&) { group_.reset(); }

  std::shared_ptr<CollectiveGroup> group_;
};

// What an operation shares with its thread.
struct Member {
  Member(const CollectiveAddress& address, uint32_t rank) : member(CollectiveGroup::open(address), rank) {}
  CollectiveMember member;
  std::atomic<bool> abort{false};
};

struct Broken {
  bool is = false;
  Ending reason{};
  uint32_t rank = 0;
  int32_t pid = 0;
  std::vector<uint32_t> missing;
  std::string message;
};

class MemberWrap : public Napi::ObjectWrap<MemberWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(
        env, "CollectiveMember",
        {InstanceMethod<&MemberWrap::barrier>("barrier"), InstanceMethod<&MemberWrap::all_reduce>("allReduce"),
         InstanceMethod<&MemberWrap::reduce_scatter>("reduceScatter"),
         InstanceMethod<&MemberWrap::all_gather>("allGather"), InstanceMethod<&MemberWrap::broadcast>("broadcast"),
         InstanceMethod<&MemberWrap::abort>("abort"), InstanceMethod<&MemberWrap::leave>("leave")});
  }

  // new CollectiveMember(address, rank)
  explicit MemberWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    guard(info.Env(), [&] {
      const CollectiveAddress address = address_of(object_argument(info, 0));
      member_ = std::make_shared<Member>(address,
                                         static_cast<uint32_t>(integer_argument(info, 1, "rank", 0, kMemberLimit - 1)));
    });
  }

 private:
  using Work = std::function<void(CollectiveMember&, const CollectiveWait&)>;

  Napi::Value barrier(const Napi::CallbackInfo& info) {
    return run(info, 0, {}, [](CollectiveMember& m, const CollectiveWait& wait) { m.barrier(wait); });
  }

  // (timeoutMs, data, fold)
  Napi::Value all_reduce(const Napi::CallbackInfo& info) {
    return guard(info.Env(), [&] {
      const auto data = floats_of(info[1], "data");
      const Fold fold = fold_of(info, 2);
      return run(info, 0, {info[1]}, [=](CollectiveMember& m, const CollectiveWait& wait) {
        m.all_reduce(data.data, data.size, fold, wait);
      });
    });
  }

  // (timeoutMs, data, out, fold)
  Napi::Value reduce_scatter(const Napi::CallbackInfo& info) {
    return guard(info.Env(), [&] {
      const auto in = floats_of(info[1], "data");
      const auto out = floats_of(info[2], "out");
      const uint64_t n = member(info.Env())->member.members();
      const uint64_t r = member(info.Env())->member.rank();
      if (out.size != in.size * (r + 1) / n - in.size * r / n)
        throw bad_argument("out", "as long as this rank's slice");
      const Fold fold = fold_of(info, 3);
      return run(info, 0, {info[1], info[2]}, [=](CollectiveMember& m, const CollectiveWait& wait) {
        m.reduce_scatter(in.data, in.size, out.data, fold, wait);
      });
    });
  }

  // (timeoutMs, bytes, out)
  Napi::Value all_gather(const Napi::CallbackInfo& info) {
    return guard(info.Env(), [&] {
      const auto in = bytes_of(info[1], "data");
      const auto out = bytes_of(info[2], "out");
      if (out.size != in.size * member(info.Env())->member.members())
        throw bad_argument("out", "as long as all members' data");
      return run(info, 0, {info[1], info[2]}, [=](CollectiveMember& m, const CollectiveWait& wait) {
        m.all_gather(in.data, in.size, out.data, wait);
      });
    });
  }

  // (timeoutMs, bytes, root)
  Napi::Value broadcast(const Napi::CallbackInfo& info) {
    return guard(info.Env(), [&] {
      const auto data = bytes_of(info[1], "data");
      const auto root =
          static_cast<uint32_t>(integer_argument(info, 2, "root", 0, member(info.Env())->member.members() - 1));
      return run(info, 0, {info[1]}, [=](CollectiveMember& m, const CollectiveWait& wait) {
        m.broadcast(data.data, data.size, root, wait);
      });
    });
  }

  // While true, the operation under way breaks the group at its next meeting that is not complete.
  void abort(const Napi::CallbackInfo& info) {
    if (member_ != nullptr) member_->abort.store(info[0].ToBoolean().Value(), std::memory_order_release);
  }
  // The memory goes with the operation under way, or now.
  void leave(const Napi::CallbackInfo&) {
    if (member_ != nullptr) member_->member.leave();
    member_.reset();
  }

  const std::shared_ptr<Member>& member(Napi::Env env) const {
    if (member_ == nullptr) throw make_error(env, "SINKFLEX_COLLECTIVE_BROKEN", "this member has left the collective");
    return member_;
  }

  static Fold fold_of(const Napi::CallbackInfo& info, size_t index) {
    return static_cast<Fold>(integer_argument(info, index, "fold", 0, 3));
  }

  // Resolves to undefined, or to why the group is broken. The arrays are held until then; whoever transfers one away
  // meanwhile takes memory from under the operation, so the face does not let go of them.
  Napi::Value run(const Napi::CallbackInfo& info, size_t timeout, std::initializer_list<Napi::Value> arrays,
                  Work work) {
    const double ms = number_of(info[timeout], "timeoutMs");
    auto held = std::make_shared<std::vector<Napi::ObjectReference>>();
    for (const Napi::Value& array : arrays) held->push_back(Napi::Persistent(array.As<Napi::Object>()));
    auto stop = std::make_shared<std::atomic<bool>>(false);
    auto broken = std::make_shared<Broken>();
    const auto member = this->member(info.Env());
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::microseconds(static_cast<int64_t>(std::clamp(ms, 0.0, 1e12) * 1000));
    return run_native(
        info.Env(), "sinkflex:collective", stop,
        [=] {
          try {
            work(member->member, {deadline, stop.get(), &member->abort});
          } catch (const CollectiveBroken& error) {
            *broken = {true, error.reason, error.rank, error.pid, error.missing, error.what()};
          }
        },
        [=](Napi::Env env) -> Napi::Value {
          held->clear();
          if (!broken->is) return env.Undefined();
          Napi::Object object = Napi::Object::New(env);
          object.Set("message", broken->message);
          object.Set("reason", static_cast<uint32_t>(broken->reason));
          object.Set("rank", broken->rank);
          if (broken->pid != 0) object.Set("pid", broken->pid);
          Napi::Array missing = Napi::Array::New(env, broken->missing.size());
          for (uint32_t i = 0; i < broken->missing.size(); i++) missing.Set(i, broken->missing[i]);
          object.Set("missing", missing);
          return object;
        });
  }

  std::shared_ptr<Member> member_;
};

}  // namespace

void init_collective(Napi::Env env, Napi::Object exports) {
  exports.Set("CollectiveGroup", GroupWrap::define(env));
  exports.Set("CollectiveMember", MemberWrap::define(env));
}

}  // namespace sinkflex
