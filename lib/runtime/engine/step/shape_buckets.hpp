// Which steps are replayed where the shapes of batches vary: one graph for the shapes of all micro batches of a step.
// Shapes that occur for the first time are launched kernel by kernel, and captured the next time. Pure: ranks that see
// the same sequence of keys decide alike. One thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace dslaunch::runtime::engine::step {

// Equal for steps that one graph can replay.
using ShapeKey = std::vector<int64_t>;

class ShapeBuckets {
 public:
  static constexpr size_t kMaxGraphs = 8;
  // A graph that was replayed within so many steps is not dropped for another one: capturing a step takes longer than
  // launching it, so more shapes in turn than there are graphs would make all steps slower.
  static constexpr int64_t kMinIdleSteps = 100;
  static constexpr size_t kMaxKnown = 64;  // keys of steps that were launched

  // `captures_first`: the first key is captured at once, because its steps have been launched before.
  explicit ShapeBuckets(bool captures_first) : captures_first_(captures_first) {}

  enum class Action : uint8_t {
    kLaunch,
    kCapture,  // into the slot, instead of the graph that may be there
    kReplay    // the slot's graph
  };
  struct Plan {
    Action action = Action::kLaunch;
    size_t slot = 0;
  };
  // Of the next step.
  Plan plan(const ShapeKey& key);
  // The graph of the last plan could not be captured: no other will be.
  void stop_capturing();

 private:
  struct Slot {
    std::optional<ShapeKey> key;  // empty: no graph
    int64_t last_step = 0;
  };
  std::optional<size_t> free_slot() const;
  bool take_known(const ShapeKey& key);

  bool captures_first_, is_capturing_ = true;
  int64_t num_steps_ = 0;
  std::vector<Slot> slots_;
  size_t last_slot_ = 0;
  std::deque<ShapeKey> known_;  // the latest ones first
};

}  // namespace dslaunch::runtime::engine::step
