// The order in which a pass over the model needs its collectives: recorded in the first pass, followed in later passes.
// Pure; one thread.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dslaunch::runtime {

struct UnitEvent {
  enum class Kind : uint8_t { kForward, kBackward, kReduce };
  Kind kind = Kind::kForward;
  int unit = 0;
  auto operator<=>(const UnitEvent&) const = default;
};
const char* to_string(UnitEvent::Kind kind);

class UnitOrder {
 public:
  void begin_pass();  // back to the start; an unfinished recording is discarded
  void end_pass();    // the first one ends the recording
  bool is_recording() const { return !is_recorded_; }

  // The recorded events that this pass has not reached yet.
  std::span<const UnitEvent> ahead() const { return std::span(events_).subspan(next_); }
  bool is_ahead(UnitEvent event) const;
  // All of a pass; none while the first one is being recorded.
  std::span<const UnitEvent> recorded() const {
    return is_recorded_ ? std::span(events_) : std::span<const UnitEvent>();
  }
  UnitEvent advance();           // to the next recorded event, which is returned
  void insert(UnitEvent event);  // at this position: counts as reached, and belongs to the order from now on
  size_t position() const { return next_; }

 private:
  std::vector<UnitEvent> events_;
  size_t next_ = 0;
  bool is_recorded_ = false;
};

}  // namespace dslaunch::runtime
