// JavaScript's VersionedSegment, its pins and writings. kernels/segment.ts is the typed face; arguments are checked
// there and here.
#include "segment.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "addon.h"
#include "native_task.h"
#include "values.h"
#include "views.h"

namespace sinkflex {
namespace {

constexpr napi_type_tag kSegmentTag = {0x5e67a1d0c3b24f18, 0x9b1f6d2ec04a7735};
constexpr napi_type_tag kWritingTag = {0x1c9e4b7a52d84e06, 0xa8f30b6d917e24c5};

// What JavaScript sees of a slot. Views end with what they show: a stale view becomes empty instead of showing another
// version.
class Views {
 public:
  // view(offset, bytes); call inside guard
  template <typename Owner>
  Napi::Value make(const Napi::CallbackInfo& info, const uint8_t* slot, uint64_t slot_bytes,
                   const std::shared_ptr<Owner>& owner) {
    const uint64_t offset = integer_argument(info, 0, "offset", 0, slot_bytes);
    const uint64_t bytes = integer_argument(info, 1, "bytes", 0, slot_bytes - offset);
    const Napi::ArrayBuffer view = view_of(info.Env(), slot + offset, bytes, owner);
    if (made_.size() >= swept_) {
      std::erase_if(made_, [](const auto& reference) { return reference.Value().IsEmpty(); });
      swept_ = 2 * made_.size() + 64;
    }
    made_.push_back(Napi::Reference<Napi::ArrayBuffer>::New(view, 0));  // the collector may have it
    return view;
  }

  void detach() {
    for (const auto& reference : made_) {
      Napi::ArrayBuffer view = reference.Value();
      if (!view.IsEmpty() && !view.IsDetached()) view.Detach();
    }
    made_.clear();
  }

 private:
  std::vector<Napi::Reference<Napi::ArrayBuffer>> made_;
  size_t swept_ = 64;
};

std::chrono::milliseconds milliseconds_of(const Napi::Value& value) {
  const double limit = 1e12;  // some thirty years
  const double ms = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : limit;
  return std::chrono::milliseconds(static_cast<int64_t>(ms > 0 ? std::min(ms, limit) : 0));
}

class SegmentWrap : public Napi::ObjectWrap<SegmentWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(
        env, "VersionedSegment",
        {InstanceMethod<&SegmentWrap::address>("address"), InstanceMethod<&SegmentWrap::sizes>("sizes"),
         InstanceMethod<&SegmentWrap::current>("current"), InstanceMethod<&SegmentWrap::published_at>("publishedAt"),
         InstanceMethod<&SegmentWrap::pins>("pins"), InstanceMethod<&SegmentWrap::begin_write>("beginWrite"),
         InstanceMethod<&SegmentWrap::begin_write_now>("beginWriteNow"),
         InstanceMethod<&SegmentWrap::wait_for_version>("waitForVersion"),
         InstanceMethod<&SegmentWrap::close>("close")});
  }

  // new VersionedSegment({slotBytes, slots, maxSlots, readers}) creates, ({pid, startTime, controlFd, nonce}) opens.
  explicit SegmentWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    guard(info.Env(), [&] {
      const Napi::Object o = object_argument(info, 0);
      if (o.Has("slotBytes")) {
        SegmentOptions options;
        options.slot_bytes = integer_property(o, "slotBytes", 1, uint64_t{1} << 46);
        options.slots = static_cast<uint32_t>(integer_property(o, "slots", 1, 1 << 16));
        options.max_slots = static_cast<uint32_t>(integer_property(o, "maxSlots", 1, 1 << 16));
        options.readers = static_cast<uint32_t>(integer_property(o, "readers", 1, 1 << 16));
        segment_ = VersionedSegment::create(options);
      } else {
        SegmentAddress address;
        address.pid = static_cast<int32_t>(integer_property(o, "pid", 1, INT32_MAX));
        address.start_time = unsigned_property(o, "startTime", 10);
        address.control_fd = static_cast<int32_t>(integer_property(o, "controlFd", 0, INT32_MAX));
        address.nonce = unsigned_property(o, "nonce", 16);
        segment_ = VersionedSegment::open(address);
      }
    });
    info.This().As<Napi::Object>().TypeTag(&kSegmentTag);
  }

  const std::shared_ptr<VersionedSegment>& segment(Napi::Env env) const {
    if (segment_ == nullptr)
      throw make_error(env, "SINKFLEX_STORE_CLOSED", "the store was closed in this process; open it again");
    return segment_;
  }

 private:
  Napi::Value address(const Napi::CallbackInfo& info) {
    const SegmentAddress& address = segment(info.Env())->address();
    char nonce[17];
    std::snprintf(nonce, sizeof nonce, "%016llx", static_cast<unsigned long long>(address.nonce));
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("pid", address.pid);
    object.Set("startTime", std::to_string(address.start_time));
    object.Set("controlFd", address.control_fd);
    object.Set("nonce", nonce);
    return object;
  }

  Napi::Value sizes(const Napi::CallbackInfo& info) {
    const VersionedSegment& s = *segment(info.Env());
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("slotBytes", static_cast<double>(s.slot_bytes()));
    object.Set("slots", s.slots());
    object.Set("maxSlots", s.max_slots());
    return object;
  }

  Napi::Value current(const Napi::CallbackInfo& info) {
    const auto version = segment(info.Env())->current();
    return version ? version_object(info.Env(), *version) : info.Env().Undefined();
  }

  Napi::Value published_at(const Napi::CallbackInfo& info) {
    const uint64_t at = segment(info.Env())->published_at();
    return at == 0 ? info.Env().Undefined() : Napi::BigInt::New(info.Env(), at);
  }

  Napi::Value pins(const Napi::CallbackInfo& info) {
    Napi::Array array = Napi::Array::New(info.Env());
    for (const HeldPin& pin : segment(info.Env())->pins()) {
      Napi::Object object = version_object(info.Env(), pin.version).As<Napi::Object>();
      object.Set("pid", pin.pid);
      array.Set(array.Length(), object);
    }
    return array;
  }

  Napi::Value begin_write(const Napi::CallbackInfo& info);
  Napi::Value begin_write_now(const Napi::CallbackInfo& info);

  // (lineage or undefined, after, timeout) -> the version, or undefined after the timeout
  Napi::Value wait_for_version(const Napi::CallbackInfo& info) {
    const auto segment = this->segment(info.Env());
    std::optional<uint32_t> lineage;
    if (info[0].IsNumber()) lineage = info[0].As<Napi::Number>().Uint32Value();
    const int64_t after = info[1].As<Napi::Number>().Int64Value();
    const StopFlag stop = new_stop();
    const auto found = std::make_shared<std::optional<Version>>();
    const WaitOptions options{milliseconds_of(info[2]), stop.get(), {}};
    return run_native(
        info.Env(), "sinkflex:waitForVersion", stop,
        [=] {
          *found = segment->wait_for_version(lineage, after, options);
          if (!*found && *stop)
            throw Error("SINKFLEX_STORE_CLOSED", "the store was closed while a version was waited for");
        },
        [=](Napi::Env env) -> Napi::Value { return *found ? version_object(env, **found) : env.Undefined(); });
  }

  void close(const Napi::CallbackInfo&) {
    for (const auto& weak : stops_) {
      if (const StopFlag stop = weak.lock()) stop->store(true, std::memory_order_release);
    }
    stops_.clear();
    segment_.reset();
  }

  static Napi::Value version_object(Napi::Env env, const Version& version) {
    Napi::Object object = Napi::Object::New(env);
    object.Set("lineage", version.lineage);
    object.Set("version", version.version);
    object.Set("slot", version.slot);
    return object;
  }

  StopFlag new_stop() {
    std::erase_if(stops_, [](const auto& weak) { return weak.expired(); });
    auto stop = std::make_shared<std::atomic<bool>>(false);
    stops_.push_back(stop);
    return stop;
  }

  std::shared_ptr<VersionedSegment> segment_;
  std::vector<std::weak_ptr<std::atomic<bool>>> stops_;  // of the waits under way

  friend class PinWrap;
};

// One pinned version. Given back by release(), or when neither this object nor its view is left.
class PinWrap : public Napi::ObjectWrap<PinWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "SegmentPin",
                       {InstanceMethod<&PinWrap::version>("version"), InstanceMethod<&PinWrap::view>("view"),
                        InstanceMethod<&PinWrap::release>("release")});
  }

  explicit PinWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    guard(info.Env(), [&] {
      reader_ = std::make_shared<VersionedSegment::Reader>(UnwrapSegment(info[0]));
      bytes_ = reader_->pin(&version_);
    });
  }

 private:
  Napi::Value version(const Napi::CallbackInfo& info) { return SegmentWrap::version_object(info.Env(), version_); }

  Napi::Value view(const Napi::CallbackInfo& info) {
    if (reader_ == nullptr) throw make_error(info.Env(), "SINKFLEX_STORE_CLOSED", "this pin was released; pin again");
    return guard(info.Env(), [&] { return views_.make(info, bytes_, reader_->segment()->slot_bytes(), reader_); });
  }

  void release(const Napi::CallbackInfo&) {
    if (reader_ == nullptr) return;
    views_.detach();
    // Not left to the last owner: the detached view's finaliser runs some turns later.
    VersionedSegment::Reader ended = std::move(*reader_);
    reader_.reset();
  }

  std::shared_ptr<VersionedSegment::Reader> reader_;
  Version version_;
  const uint8_t* bytes_ = nullptr;
  Views views_;
};

using SharedWriting = std::shared_ptr<VersionedSegment::Writing>;

// What `new SegmentWriting` takes.
Napi::Value begun(Napi::Env env, SharedWriting writing) {
  auto external = Napi::External<SharedWriting>::New(env, new SharedWriting(std::move(writing)),
                                                     [](Napi::Env, SharedWriting* held) { delete held; });
  external.TypeTag(&kWritingTag);
  return external;
}

Napi::Value SegmentWrap::begin_write(const Napi::CallbackInfo& info) {
  const auto segment = this->segment(info.Env());
  const StopFlag stop = new_stop();
  const auto writing = std::make_shared<SharedWriting>();
  const WaitOptions options{milliseconds_of(info[0]), stop.get(), {}};
  return run_native(
      info.Env(), "sinkflex:beginWrite", stop,
      [=] { *writing = std::make_shared<VersionedSegment::Writing>(segment->begin_write(options)); },
      [=](Napi::Env env) { return begun(env, std::move(*writing)); });
}

// For what happens once and need not wait.
Napi::Value SegmentWrap::begin_write_now(const Napi::CallbackInfo& info) {
  const auto segment = this->segment(info.Env());
  return guard(info.Env(), [&] {
    const WaitOptions options{std::chrono::milliseconds(0), nullptr, {}};
    return begun(info.Env(), std::make_shared<VersionedSegment::Writing>(segment->begin_write(options)));
  });
}

// The slot being written; made from what beginWrite resolved to. Collected without publish: aborted.
class WritingWrap : public Napi::ObjectWrap<WritingWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(
        env, "SegmentWriting",
        {InstanceMethod<&WritingWrap::slot>("slot"), InstanceMethod<&WritingWrap::view>("view"),
         InstanceMethod<&WritingWrap::publish>("publish"), InstanceMethod<&WritingWrap::abort>("abort")});
  }

  explicit WritingWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    if (!info[0].IsExternal() || !info[0].As<Napi::External<SharedWriting>>().CheckTypeTag(&kWritingTag)) {
      throw Napi::TypeError::New(info.Env(), "expected what beginWrite resolved to");
    }
    writing_ = std::move(*info[0].As<Napi::External<SharedWriting>>().Data());
    if (writing_ == nullptr) throw Napi::TypeError::New(info.Env(), "this writing was taken already");
    segment_ = writing_->segment();
  }

 private:
  Napi::Value slot(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), writing(info.Env()).slot()); }

  Napi::Value view(const Napi::CallbackInfo& info) {
    VersionedSegment::Writing& writing = this->writing(info.Env());
    return guard(info.Env(), [&] { return views_.make(info, writing.data(), segment_->slot_bytes(), writing_); });
  }

  void publish(const Napi::CallbackInfo& info) {
    guard(info.Env(), [&] {
      const uint32_t lineage = static_cast<uint32_t>(integer_argument(info, 0, "lineage", 0, UINT32_MAX));
      const uint32_t version = static_cast<uint32_t>(integer_argument(info, 1, "version", 0, UINT32_MAX));
      writing(info.Env()).publish(lineage, version);
    });
    views_.detach();
    writing_.reset();
  }

  void abort(const Napi::CallbackInfo&) {
    if (writing_ == nullptr) return;
    views_.detach();
    writing_->abort();
    writing_.reset();
  }

  VersionedSegment::Writing& writing(Napi::Env env) const {
    if (writing_ == nullptr)
      throw make_error(env, "SINKFLEX_STORE_CLOSED", "this writing is over: it was published or aborted");
    return *writing_;
  }

  SharedWriting writing_;
  std::shared_ptr<VersionedSegment> segment_;
  Views views_;
};

}  // namespace

std::shared_ptr<VersionedSegment> UnwrapSegment(const Napi::Value& value) {
  if (!value.IsObject() || !value.As<Napi::Object>().CheckTypeTag(&kSegmentTag)) {
    throw Napi::TypeError::New(value.Env(), "expected a VersionedSegment");
  }
  return SegmentWrap::Unwrap(value.As<Napi::Object>())->segment(value.Env());
}

void init_segment(Napi::Env env, Napi::Object exports) {
  exports.Set("VersionedSegment", SegmentWrap::define(env));
  exports.Set("SegmentPin", PinWrap::define(env));
  exports.Set("SegmentWriting", WritingWrap::define(env));
}

}  // namespace sinkflex
