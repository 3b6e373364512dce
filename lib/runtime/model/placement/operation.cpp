#include "runtime/model/placement/operation.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

const Placement kWholePlacement = {};
const Placements kNoPlacements = {};

Sizes sizes_of(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? value.toTensor().sizes().vec() : Sizes{};
}

std::vector<Sizes> sizes_of_list(const c10::IValue* value) {
  std::vector<Sizes> out;
  if (value == nullptr || !value->isList()) return out;
  for (const c10::IValue& element : value->toListRef()) out.push_back(sizes_of(element));
  return out;
}

}  // namespace

bool is_whole(const Placements& held) {
  return std::all_of(held.begin(), held.end(), [](const auto& one) { return one.is_whole(); });
}

bool Operation::is_tensor(size_t input) const {
  const c10::IValue* value = known(input);
  return value != nullptr && value->isTensor() && value->toTensor().defined();
}

const Placements& Operation::placements(size_t input) const {
  const auto found = state_.placements.find(node_.input(input));
  return found == state_.placements.end() ? kNoPlacements : found->second;
}

const Placement& Operation::placement(size_t input) const {
  const Placements& held = placements(input);
  return held.empty() || !is_tensor(input) ? kWholePlacement : held.front();
}

Sizes Operation::sizes(size_t input) const {
  const c10::IValue* value = known(input);
  return value == nullptr ? Sizes{} : sizes_of(*value);
}

std::vector<Sizes> Operation::list_sizes(size_t input) const {
  return sizes_of_list(known(input));
}

Sizes Operation::result_sizes(size_t output) const {
  const c10::IValue* value = state_.known.find(node_.output(output));
  return value == nullptr ? Sizes{} : sizes_of(*value);
}

std::vector<Sizes> Operation::result_list_sizes() const {
  return sizes_of_list(state_.known.find(node_.output(0)));
}

const c10::IValue* Operation::known(size_t input) const {
  return state_.known.find(node_.input(input));
}

int64_t Operation::number(size_t input, int64_t otherwise) const {
  const c10::IValue* value = input < num_inputs() ? known(input) : nullptr;
  return value != nullptr && value->isInt() ? value->toInt() : otherwise;
}

std::vector<int64_t> Operation::numbers(size_t input) const {
  const c10::IValue* value = input < num_inputs() ? known(input) : nullptr;
  if (value != nullptr && value->isInt()) return {value->toInt()};
  return value != nullptr && value->isIntList() ? value->toIntVector() : std::vector<int64_t>{};
}

std::optional<size_t> Operation::argument(std::string_view name) const {
  const auto* schema = node_.maybeSchema();
  if (schema == nullptr) return std::nullopt;
  for (size_t i = 0; i < schema->arguments().size() && i < num_inputs(); ++i) {
    if (schema->arguments()[i].name() == name) return i;
  }
  return std::nullopt;
}

const ParameterView* Operation::parameter(size_t input) const {
  const auto found = state_.parameters.find(node_.input(input));
  return found == state_.parameters.end() ? nullptr : &found->second;
}

bool Operation::any(bool (*holds)(const Placement&)) const {
  for (size_t i = 0; i < num_inputs(); ++i) {
    const auto& held = placements(i);
    if (std::any_of(held.begin(), held.end(), holds)) return true;
  }
  return false;
}

bool Operation::any_sharded() const {
  return any([](const Placement& held) { return held.is_sharded(); });
}

bool Operation::any_partial() const {
  return any([](const Placement& held) { return held.is_partial(); });
}

bool Operation::any_grouped() const {
  return any([](const Placement& held) { return held.groups > 1; });
}

Origins Operation::origins() const {
  Origins out;
  for (size_t i = 0; i < num_inputs(); ++i) {
    for (const auto& held : placements(i)) out = united(out, origins_of(held));
  }
  return out;
}

Outcome Operation::whole(const std::string& why) const {
  if (any_sharded()) refuse(why);
  Outcome out = as_it_is();
  for (auto& read : out.reads) {
    for (auto& placement : read) placement = {};
  }
  return out;
}

Outcome Operation::as_it_is() const {
  Outcome out{.reads = {}, .results = {}};
  for (size_t i = 0; i < num_inputs(); ++i) out.reads.push_back(placements(i));
  out.results.resize(node_.outputs().size());
  return out;
}

Segments Operation::meet(const Segments& one, const Segments& other) const {
  const auto divide = [&](const Segments& coarse, const Segments& fine) {
    std::vector<int64_t> pieces;
    for (const Segment& segment : fine) pieces.push_back(segment.length());
    throw Divide{origins_of(coarse), std::move(pieces)};
  };
  if (length_of(one) != length_of(other)) refuse("two operands are split in dims of different sizes");
  if (one.size() == 1 && other.size() > 1) divide(one, other);
  if (other.size() == 1 && one.size() > 1) divide(other, one);
  if (one.size() != other.size()) refuse("two operands are split at different places");
  Segments out;
  for (size_t i = 0; i < one.size(); ++i) {
    const Origins origins = united(one[i].origins, other[i].origins);
    if (one[i].length() != other[i].length()) refuse("two operands are split at different places");
    const int64_t items = std::gcd(one[i].items, other[i].items);
    if (items < ranks()) refuse(fmt::format("{} parts that must stay whole are fewer than the tensor ranks", items));
    if (items != one[i].items || items != other[i].items) throw Coarsen{origins, items};
    out.push_back({items, one[i].width, origins});
  }
  return out;
}

Segments Operation::in_units(const Segments& segments, int64_t unit) const {
  for (const Segment& segment : segments) {
    if (segment.length() % unit != 0) refuse(fmt::format("it is split inside parts of {} that stay together", unit));
    const int64_t items = std::gcd(segment.items, segment.length() / unit);
    if (items < ranks()) refuse(fmt::format("{} parts that must stay whole are fewer than the tensor ranks", items));
    if (items != segment.items) throw Coarsen{segment.origins, items};
  }
  return segments;
}

void Operation::cut_at(const Segments& segments, const std::vector<int64_t>& positions) const {
  int64_t begin = 0;
  for (const Segment& segment : segments) {
    const int64_t end = begin + segment.length();
    std::vector<int64_t> pieces;
    int64_t last = begin;
    for (const int64_t position : positions) {
      if (position <= last || position >= end) continue;
      pieces.push_back(position - last);
      last = position;
    }
    if (!pieces.empty()) {
      pieces.push_back(end - last);
      throw Divide{segment.origins, std::move(pieces)};
    }
    begin = end;
  }
}

NumberEdit Operation::local_number(size_t input, std::optional<size_t> position, const Segments& segments,
                                   int64_t groups) const {
  NumberEdit out{input, position, {}, groups > 1 ? length_of(segments) : 0};
  if (are_positions(segments)) return out;
  for (int rank = 0; rank < ranks(); ++rank) out.by_rank.push_back(local_length(segments, ranks(), rank));
  return out;
}

void Operation::shard_parameter(size_t input, int64_t dim, const Segments& segments) const {
  const ParameterView* view = parameter(input);
  if (view == nullptr) return;
  throw Shard{view->parameter, sharded(view->dims.at(static_cast<size_t>(dim)), segments)};
}

Segments segments_within(const Segments& segments, int64_t begin, int64_t end) {
  Segments out;
  int64_t at = 0;
  for (const Segment& segment : segments) {
    if (at >= begin && at + segment.length() <= end) out.push_back(segment);
    at += segment.length();
  }
  DSL_CHECK(length_of(out) == end - begin, "segments begin and end where they were cut");
  return out;
}

int64_t wrapped(int64_t dim, size_t dims) {
  return dim < 0 ? dim + static_cast<int64_t>(dims) : dim;
}

}  // namespace dslaunch::runtime::model::placement
