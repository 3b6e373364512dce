#include "runtime/engine/inference/streamed_parameters.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr int64_t kCopiedAtOnce = 1 << 22;  // elements

}  // namespace

StreamedParameters::StreamedParameters(const ParameterTable& table, const offload::ParameterFileOptions& options,
                                       const ReadElements& read)
    : table_(table), units_(table.units.size()) {
  plan_groups();
  std::vector<StoredSlice> slices;
  for (const Group& group : groups_) slices.push_back({static_cast<int>(slices.size()), group.dtype, {group.numel}});
  file_ = std::make_unique<offload::ParameterFile>(options, slices, std::vector<at::Tensor>{}, at::kCPU,
                                                   std::function<void()>{});
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (const Member& member : groups_[i].members) {
      const int64_t numel = table_.parameters[static_cast<size_t>(member.parameter)].numel;
      for (int64_t begin = 0; begin < numel; begin += kCopiedAtOnce) {
        const at::Tensor values = at::empty({std::min(kCopiedAtOnce, numel - begin)}, groups_[i].dtype);
        read(member.parameter, begin, values);
        file_->write(static_cast<int>(i), member.begin + begin, values);
      }
    }
  }
}

void StreamedParameters::plan_groups() {
  for (size_t unit = 0; unit < table_.units.size(); ++unit) {
    for (const auto* members : {&table_.units[unit].parameters, &table_.units[unit].frozen}) {
      for (const int parameter : *members) add_member(static_cast<int>(unit), parameter);
    }
  }
}

void StreamedParameters::add_member(int unit, int parameter) {
  const ParameterInfo& info = table_.parameters[static_cast<size_t>(parameter)];
  if (info.numel == 0) return;
  auto& own = units_[static_cast<size_t>(unit)].groups;
  const auto same = std::find_if(own.begin(), own.end(),
                                 [&](int number) { return groups_[static_cast<size_t>(number)].dtype == info.dtype; });
  const bool is_new = same == own.end();
  const int number = is_new ? static_cast<int>(groups_.size()) : *same;
  if (is_new) {
    own.push_back(number);
    groups_.push_back({info.dtype, {}, 0});
  }
  Group& group = groups_[static_cast<size_t>(number)];
  group.members.push_back({parameter, group.numel});
  group.numel += info.numel;
}

UnitValues StreamedParameters::acquire(int unit, UnitCall) {
  if (unit == 0) begin_forward();
  this_forward_.push_back(unit);
  Unit& called = units_[static_cast<size_t>(unit)];
  if (called.num_calls++ == 0) read_unit(unit);
  read_ahead();
  UnitValues out;
  const UnitInfo& info = table_.units[static_cast<size_t>(unit)];
  const auto value = [&](int parameter) {
    const at::Tensor& read = called.of[static_cast<size_t>(parameter)];
    const ParameterInfo& of = table_.parameters[static_cast<size_t>(parameter)];
    return read.defined() ? read : at::empty(of.shape, of.dtype);  // an empty one
  };
  for (const int parameter : info.parameters) out.parameters.push_back(value(parameter));
  for (const int parameter : info.frozen) out.frozen.push_back(value(parameter));
  return out;
}

// A unit whose output is a view of a parameter was not released.
void StreamedParameters::begin_forward() {
  if (!this_forward_.empty()) last_forward_ = std::exchange(this_forward_, {});
  for (Unit& unit : units_) unit = {std::move(unit.groups), 0, {}};
}

void StreamedParameters::read_unit(int index) {
  Unit& unit = units_[static_cast<size_t>(index)];
  unit.of.assign(table_.parameters.size(), {});
  for (const int number : unit.groups) {
    const Group& group = groups_[static_cast<size_t>(number)];
    const at::Tensor values = at::empty({group.numel}, group.dtype);
    file_->read(number, values);
    for (const Member& member : group.members) {
      const ParameterInfo& info = table_.parameters[static_cast<size_t>(member.parameter)];
      unit.of[static_cast<size_t>(member.parameter)] = values.narrow(0, member.begin, info.numel).view(info.shape);
    }
  }
}

// What the last forward called after this call, and then what the next forward will call.
void StreamedParameters::read_ahead() {
  const auto position = static_cast<std::ptrdiff_t>(this_forward_.size());
  if (std::ssize(last_forward_) < position ||
      !std::equal(this_forward_.begin(), this_forward_.end(), last_forward_.begin())) {
    return;
  }
  std::vector<int> order(last_forward_.begin() + position, last_forward_.end()), groups;
  const size_t rest = order.size();
  order.insert(order.end(), last_forward_.begin(), last_forward_.end());
  for (size_t i = 0; i < order.size() && groups.size() < file_->max_ahead(); ++i) {
    const auto& unit = units_[static_cast<size_t>(order[i])];
    if (i < rest && unit.num_calls > 0) continue;  // a call within its own call, or within the root's
    groups.insert(groups.end(), unit.groups.begin(), unit.groups.end());
  }
  file_->read_ahead(groups);
}

void StreamedParameters::release(int unit) {
  Unit& called = units_[static_cast<size_t>(unit)];
  if (called.num_calls > 0 && --called.num_calls == 0) called.of.clear();
}

}  // namespace dslaunch::runtime::engine::inference
