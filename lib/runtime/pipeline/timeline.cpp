#include "runtime/pipeline/timeline.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::pipeline {
namespace {

using enum ActionKind;

bool computes(const TimedAction& timed) {
  return !is_transfer(timed.action.kind);
}

// What the stage computes in each slot.
std::vector<std::string> cells_of(const StageTimeline& stage, double slot, size_t num_slots) {
  std::vector<std::string> cells(num_slots, ".");
  for (const TimedAction& timed : stage) {
    if (!computes(timed)) continue;
    const auto first_middle_after = [&](double time) {
      return std::min(num_slots, static_cast<size_t>(std::max(0.0, std::ceil(time / slot - 0.5))));
    };
    const size_t end = first_middle_after(timed.end);
    for (size_t i = first_middle_after(timed.begin); i < end; ++i) cells[i] = label(timed.action);
  }
  return cells;
}

}  // namespace

double Timeline::duration() const {
  double end = 0;
  for (const auto& stage : stages) {
    for (const auto& timed : stage) end = computes(timed) ? std::max(end, timed.end) : end;
  }
  return end;
}

double Timeline::busy(size_t stage) const {
  double sum = 0;
  for (const auto& timed : stages.at(stage)) sum += computes(timed) ? timed.end - timed.begin : 0;
  return sum;
}

double Timeline::idle_share(size_t stage) const {
  const double all = duration();
  return all > 0 ? 1 - busy(stage) / all : 0;
}

double Timeline::bubble() const {
  double sum = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) sum += idle_share(stage);
  return stages.empty() ? 0 : sum / static_cast<double>(stages.size());
}

StageMemory peak_memory(const std::vector<Action>& plan) {
  StageMemory peak;
  int live = 0, deferred = 0;
  for (const Action& action : plan) {
    if (action.kind == kForward) live += 1;
    if (action.kind == kBackward || action.kind == kInputGradient) live -= 1;
    if (action.kind == kInputGradient) deferred += 1;
    peak.live_activations = std::max(peak.live_activations, live);
    peak.deferred_weight_gradients = std::max(peak.deferred_weight_gradients, deferred);
    if (action.kind == kWeightGradient) deferred -= 1;
  }
  return peak;
}

std::string format_table(const Timeline& timeline, double slot, size_t max_width) {
  DSL_CHECK(slot > 0, "a slot takes time");
  const auto num_slots = static_cast<size_t>(std::ceil(timeline.duration() / slot - 1e-9));
  std::vector<std::vector<std::string>> rows;
  size_t cell_width = 1;
  for (const auto& stage : timeline.stages) {
    rows.push_back(cells_of(stage, slot, num_slots));
    for (const auto& cell : rows.back()) cell_width = std::max(cell_width, cell.size());
  }
  const size_t name_width = fmt::formatted_size("stage {}", rows.size() - 1);
  size_t slots_per_block = num_slots;
  if (max_width > 0) {
    const size_t room = max_width - std::min(max_width, name_width);
    slots_per_block = std::clamp<size_t>(room / (cell_width + 1), 1, std::max<size_t>(1, num_slots));
  }
  std::string text;
  for (size_t first = 0; first < num_slots; first += slots_per_block) {
    const size_t end = std::min(num_slots, first + slots_per_block);
    if (slots_per_block < num_slots) text += fmt::format("{}slots {} to {}\n", first > 0 ? "\n" : "", first, end - 1);
    for (size_t stage = 0; stage < rows.size(); ++stage) {
      std::string line = fmt::format("{:<{}}", fmt::format("stage {}", stage), name_width);
      for (size_t i = first; i < end; ++i) line += fmt::format(" {:<{}}", rows[stage][i], cell_width);
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
  }
  return text;
}

}  // namespace dslaunch::runtime::pipeline
