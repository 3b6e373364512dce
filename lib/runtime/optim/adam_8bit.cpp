// AdamW with moments in 8 bits each, as in bitsandbytes: the codes of a dynamic map times the largest magnitude of each
// block of 256 elements. Each step widens a block's moments, updates them and the parameters in fp32, and rounds the
// moments to the nearest codes.
//
// Blocks are those of a parameter, wherever shards begin: of a block that lies on several ranks the largest magnitude
// is that of all of them, so that any sharding gives the same bits. Small parameters keep their moments in fp32.
#include "runtime/optim/algorithms.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "runtime/optim/step_choice.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime::optim {
namespace {

constexpr int64_t kBlock = 256;
constexpr int64_t kChunkBlocks = 1 << 14;  // worked on at once: what a step needs in memory beside the state
constexpr size_t kNumMoments = 2;

struct MomentFormat {
  const char* name;
  const char* scale_name;
  bool is_signed;
};
constexpr MomentFormat kFormats[kNumMoments] = {{"exp_avg", "exp_avg_scale", true},
                                                {"exp_avg_sq", "exp_avg_sq_scale", false}};

// bitsandbytes' dynamic map: seven decades, each divided evenly, twice as finely as the decade below it; 0 and 1.
std::vector<float> dynamic_map(bool is_signed) {
  std::vector<float> values{0.0F, 1.0F};
  for (int decade = 0; decade < 7; ++decade) {
    const int count = 1 << (decade + (is_signed ? 0 : 1));
    for (int i = 0; i < count; ++i) {
      const double low = 0.1 + 0.9 * i / count, high = 0.1 + 0.9 * (i + 1) / count;
      const auto value = static_cast<float>(std::pow(10.0, decade - 6) * (low + high) / 2);
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

constexpr int64_t kTableBytes = (256 + 255) * sizeof(float);  // of a moment's Codes

// The values of the codes, and the bounds between the numbers that are nearest to each.
struct Codes {
  at::Tensor values, bounds;

  Codes(bool is_signed, at::Device device) {
    const std::vector<float> all = dynamic_map(is_signed);
    std::vector<float> between;
    for (size_t i = 1; i < all.size(); ++i) between.push_back((all[i - 1] + all[i]) / 2);
    values = at::tensor(all).to(device);
    bounds = at::tensor(between).to(device);
  }

  // [blocks, 256] each.
  at::Tensor widened(const at::Tensor& codes, const at::Tensor& scales) const {
    return values.index_select(0, codes.flatten().to(at::kInt)).view(codes.sizes()) * scales.unsqueeze(1);
  }
  at::Tensor nearest(const at::Tensor& moments, const at::Tensor& scales) const {
    const at::Tensor divisors = at::where(scales > 0, scales, at::ones_like(scales)).unsqueeze(1);
    return at::bucketize(moments / divisors, bounds, /*out_int32=*/true).to(at::kByte);
  }
};

struct Moment {
  at::Tensor codes;   // uint8, by element; fp32 values where the parameter is small
  at::Tensor scales;  // fp32, by block that the part touches; undefined where the parameter is small
};

// What a rank has of a parameter.
struct Part {
  int parameter = 0;
  int64_t begin = 0, count = 0;  // elements
  Moment moments[kNumMoments] = {};

  int64_t end() const { return begin + count; }
  int64_t first_block() const { return begin / kBlock; }
  int64_t num_blocks() const { return (end() + kBlock - 1) / kBlock - first_block(); }
  bool is_quantized() const { return moments[0].scales.defined(); }
};

// Elements [begin, end) of a part that fill blocks, but where the part begins or ends within a block.
struct Chunk {
  int64_t begin = 0, end = 0;  // within the parameter
  int64_t first_block = 0, num_blocks = 0;

  // [blocks, 256] of the part's values, `fill` around them.
  at::Tensor blocks(const Part& part, const at::Tensor& values, double fill) const {
    const at::Tensor own = values.narrow(0, begin - part.begin, end - begin);
    if (own.numel() == num_blocks * kBlock) return own.view({num_blocks, kBlock});
    at::Tensor out = at::full({num_blocks * kBlock}, fill, values.options());
    out.narrow(0, begin - first_block * kBlock, own.numel()).copy_(own);
    return out.view({num_blocks, kBlock});
  }
  // Back from blocks.
  at::Tensor elements(const at::Tensor& blocks) const {
    return blocks.flatten().narrow(0, begin - first_block * kBlock, end - begin);
  }
};

std::vector<Chunk> chunks_of(const Part& part) {
  std::vector<Chunk> out;
  const int64_t last = part.first_block() + part.num_blocks();
  for (int64_t block = part.first_block(); block < last; block += kChunkBlocks) {
    const int64_t count = std::min(kChunkBlocks, last - block);
    out.push_back({std::max(part.begin, block * kBlock), std::min(part.end(), (block + count) * kBlock), block, count});
  }
  return out;
}

// The factors of a step, 0-dim fp32 tensors on the device.
struct Factors {
  at::Tensor row;
  at::Tensor operator[](int i) const { return row[i]; }
};
enum Factor { kShare1, kBeta2, kShare2, kStepSize, kInverseRoot, kEps, kDecay, kNumFactors };

class Adam8bit final : public FlatOptimizer {
 public:
  Adam8bit(const OptimizerGroups& groups, FlatLayout layout) : groups_(groups.groups), layout_(layout) {
    DSL_CHECK(layout.table != nullptr && layout.groups != nullptr, "AdamW8bit needs the layout of the parameters");
    if (layout.ranks == nullptr) return;
    for (const FlatGroup& group : *layout.groups) find_shared_blocks(group, layout.ranks->size());
  }

  const std::vector<std::string>& moment_names(int) const override {
    static const std::vector<std::string> kNone;
    return kNone;
  }

  int64_t own_state_bytes(std::span<const StateSpan> spans) const override {
    int64_t bytes = kNumMoments * kTableBytes;
    for (const auto& span : spans) {
      for (const auto& part : parts_of(span)) {
        const auto element = static_cast<int64_t>(is_small(part.parameter) ? sizeof(float) : sizeof(uint8_t));
        const auto scales = is_small(part.parameter) ? 0 : part.num_blocks() * static_cast<int64_t>(sizeof(float));
        bytes += static_cast<int64_t>(kNumMoments) * (part.count * element + scales);
      }
    }
    return bytes;
  }

  void allocate_own_state(std::span<const SpanState> states) override {
    parts_.clear();
    for (size_t m = 0; m < kNumMoments && !states.empty(); ++m) codes(m, states[0].arrays.master.device());
    for (const auto& [span, arrays] : states) {
      const auto fp32 = arrays.master.options();
      for (Part& part : parts_of(span)) {
        for (size_t m = 0; m < kNumMoments; ++m) {
          const bool is_small_part = is_small(part.parameter);
          part.moments[m].codes = at::zeros({part.count}, is_small_part ? fp32 : fp32.dtype(at::kByte));
          if (is_small_part) continue;
          part.moments[m].codes.fill_(code_of_zero(kFormats[m].is_signed));
          part.moments[m].scales = at::zeros({part.num_blocks()}, fp32);
        }
        parts_[part.parameter] = std::move(part);
      }
    }
  }

  std::vector<OwnState> own_state() const override {
    std::vector<OwnState> out;
    for (const auto& [parameter, part] : parts_) {
      for (size_t m = 0; m < kNumMoments; ++m) {
        const Moment& moment = part.moments[m];
        if (!part.is_quantized()) {
          out.push_back({parameter, kFormats[m].name, part.begin, moment.codes});
          continue;
        }
        out.push_back({parameter, kFormats[m].name, part.begin, widened_on_host(part, m)});
        const int64_t skipped = part.begin % kBlock == 0 ? 0 : 1;  // the rank with its first element saves a block's
        if (part.num_blocks() == skipped) continue;
        out.push_back({parameter, kFormats[m].scale_name, part.first_block() + skipped,
                       moment.scales.narrow(0, skipped, part.num_blocks() - skipped)});
      }
    }
    return out;
  }

  void restore_own_state(const ReadOwnState& read) override {
    for (auto& [parameter, part] : parts_) {
      for (size_t m = 0; m < kNumMoments; ++m) restore(part, m, read);
    }
  }

  void step(std::span<const SpanState> states, const StepInputs& inputs) const override {
    if (states.empty()) return;
    const at::Device device = states[0].arrays.master.device();
    check_inputs(inputs, device);
    for (const auto& state : states) check_state(state, device, groups_.size(), 0);
    if (device.is_cpu() && is_skipped(inputs)) return;
    const at::NoGradGuard no_grad;
    const at::Tensor factors = factors_by_set(inputs, device);
    std::vector<Update> updates;
    for (const auto& [span, arrays] : states) {
      for (const auto& piece : pieces_in(flat_group(span), span.range)) {
        const int set = inputs.starts().set_of(piece.parameter, span.optimizer_group, groups_.size());
        updates.push_back({narrow(arrays, piece.offset, piece.count), &parts_.at(piece.parameter), {factors[set]}});
      }
    }
    const at::Tensor shared = largest_of_shared_blocks(updates, inputs, device);
    for (const auto& update : updates) {
      if (update.part->is_quantized()) {
        for (const Chunk& chunk : chunks_of(*update.part)) update_chunk(update, chunk, shared, inputs);
      } else {
        update_small(update, inputs);
      }
    }
  }

 private:
  struct Update {
    StateArrays arrays;  // narrowed to the part
    const Part* part = nullptr;
    Factors factors;
  };

  const FlatGroup& flat_group(const StateSpan& span) const {
    return layout_.groups->at(static_cast<size_t>(span.flat_group));
  }
  bool is_small(int parameter) const {
    return layout_.table->parameters.at(static_cast<size_t>(parameter)).numel < groups_.front().settings.min_8bit_size;
  }
  std::vector<Part> parts_of(const StateSpan& span) const {
    std::vector<Part> out;
    for (const auto& piece : pieces_in(flat_group(span), span.range)) {
      out.push_back({.parameter = piece.parameter, .begin = piece.begin, .count = piece.count});
    }
    return out;
  }
  static uint8_t code_of_zero(bool is_signed) { return is_signed ? 127 : 0; }

  const Codes& codes(size_t moment, at::Device device) const {
    auto& of_device = codes_[{moment, device.str()}];
    if (!of_device) of_device = std::make_unique<Codes>(kFormats[moment].is_signed, device);
    return *of_device;
  }

  // Blocks that the end of a shard cuts.
  void find_shared_blocks(const FlatGroup& group, int num_ranks) {
    for (const auto& segment : group.segments) {
      if (is_small(segment.parameter)) continue;
      for (int rank = 1; rank < num_ranks; ++rank) {
        const int64_t at = shard_range(group, rank, num_ranks).begin - segment.offset;
        if (at <= 0 || at >= segment.numel || at % kBlock == 0) continue;
        shared_.try_emplace({segment.parameter, at / kBlock}, static_cast<int64_t>(shared_.size()));
      }
    }
  }

  at::Tensor factors_by_set(const StepInputs& inputs, at::Device device) const {
    const size_t num_sets = inputs.starts().num_sets(groups_.size());
    at::Tensor rows = host_memory_for(
        device, {static_cast<int64_t>(inputs.rates.size()), static_cast<int64_t>(num_sets), kNumFactors}, at::kFloat);
    auto* next = rows.mutable_data_ptr<float>();
    for (const StepRates& rates : inputs.rates) {
      for (size_t set = 0; set < num_sets; ++set) {
        const size_t group = MomentStarts::group_of_set(set, groups_.size());
        const int64_t step = std::max<int64_t>(1, inputs.starts().step_of_set(set, groups_.size(), rates.step));
        const AdamCoefficients c = adam_coefficients(groups_[group].settings, rates.of_group(group), step);
        for (const float value : {c.one_minus_beta1, c.beta2, c.one_minus_beta2, c.step_size, c.inverse_root_correction,
                                  c.eps, c.decoupled_decay}) {
          *next++ = value;
        }
      }
    }
    rows = rows.to(device, /*non_blocking=*/true);
    if (!inputs.applied_steps.defined()) return rows[0];
    return rows.index_select(0, (inputs.applied_steps - (inputs.rates[0].step - 1)).view({1}))[0];
  }

  struct Moved {
    at::Tensor gradient, moments[kNumMoments];
  };
  // The moments of a chunk after the step, [blocks, 256]; 0 outside the part.
  Moved moved(const Update& update, const Chunk& chunk, const StepInputs& inputs) const {
    const Part& part = *update.part;
    at::Tensor g = chunk.blocks(part, update.arrays.gradient, 0).to(at::kFloat);
    if (inputs.gradient_factor.defined()) g = g * inputs.gradient_factor;
    at::Tensor before[kNumMoments];
    for (size_t m = 0; m < kNumMoments; ++m) {
      const Moment& moment = part.moments[m];
      before[m] = codes(m, g.device())
                      .widened(chunk.blocks(part, moment.codes, code_of_zero(kFormats[m].is_signed)),
                               moment.scales.narrow(0, chunk.first_block - part.first_block(), chunk.num_blocks));
    }
    const Factors& f = update.factors;
    return {g, {before[0] + (g - before[0]) * f[kShare1], before[1] * f[kBeta2] + g * g * f[kShare2]}};
  }

  // fp32 [shared blocks, 2]: the largest magnitudes of their moments after the step, over all ranks.
  at::Tensor largest_of_shared_blocks(const std::vector<Update>& updates, const StepInputs& inputs,
                                      at::Device device) const {
    const auto count = static_cast<int64_t>(shared_.size());
    at::Tensor own = at::zeros({count, kNumMoments}, at::TensorOptions().dtype(at::kFloat).device(device));
    if (count == 0) return own;
    for (const auto& update : updates) {
      const Part& part = *update.part;
      if (!part.is_quantized()) continue;
      for (const int64_t block : {part.first_block(), part.first_block() + part.num_blocks() - 1}) {
        const auto slot = shared_.find({part.parameter, block});
        if (slot == shared_.end()) continue;
        const Chunk chunk{std::max(part.begin, block * kBlock), std::min(part.end(), (block + 1) * kBlock), block, 1};
        const Moved after = moved(update, chunk, inputs);
        for (size_t m = 0; m < kNumMoments; ++m) {
          own[slot->second][static_cast<int64_t>(m)].copy_(after.moments[m].abs().amax());
        }
      }
    }
    at::Tensor all = at::empty({layout_.ranks->size(), count, kNumMoments}, own.options());
    layout_.ranks->all_gather({own.const_data_ptr(), own.nbytes(), comm::DType::kUInt8},
                              {all.mutable_data_ptr(), all.nbytes(), comm::DType::kUInt8});
    return all.amax(0);
  }

  at::Tensor scales_of(const Part& part, const Chunk& chunk, size_t m, const at::Tensor& moments,
                       const at::Tensor& shared) const {
    at::Tensor scales = moments.abs().amax(1);
    for (const int64_t block : {part.first_block(), part.first_block() + part.num_blocks() - 1}) {
      const auto slot = shared_.find({part.parameter, block});
      const int64_t at = block - chunk.first_block;
      if (slot == shared_.end() || at < 0 || at >= chunk.num_blocks) continue;
      scales[at].copy_(shared[slot->second][static_cast<int64_t>(m)]);
    }
    return scales;
  }

  static at::Tensor updated(const Factors& f, const at::Tensor& p, const at::Tensor& m, const at::Tensor& v) {
    const at::Tensor denominator = v.sqrt() * f[kInverseRoot] + f[kEps];
    return p - (m / denominator * f[kStepSize] + p * f[kDecay]);
  }

  void update_chunk(const Update& update, const Chunk& chunk, const at::Tensor& shared,
                    const StepInputs& inputs) const {
    const Part& part = *update.part;
    const Moved after = moved(update, chunk, inputs);
    const int64_t offset = chunk.begin - part.begin, count = chunk.end - chunk.begin;
    const at::Tensor master = update.arrays.master.narrow(0, offset, count);
    const at::Tensor p =
        updated(update.factors, master, chunk.elements(after.moments[0]), chunk.elements(after.moments[1]));
    for (size_t m = 0; m < kNumMoments; ++m) {
      const at::Tensor scales = scales_of(part, chunk, m, after.moments[m], shared);
      const at::Tensor nearest = codes(m, p.device()).nearest(after.moments[m], scales);
      write_unless_skipped(part.moments[m].codes.narrow(0, offset, count), chunk.elements(nearest), inputs.skip);
      write_unless_skipped(part.moments[m].scales.narrow(0, chunk.first_block - part.first_block(), chunk.num_blocks),
                           scales, inputs.skip);
    }
    write_parameter(narrow(update.arrays, offset, count), p, inputs.skip);
  }

  void update_small(const Update& update, const StepInputs& inputs) const {
    const at::Tensor &m = update.part->moments[0].codes, &v = update.part->moments[1].codes;
    const Factors& f = update.factors;
    at::Tensor g = update.arrays.gradient.to(at::kFloat);
    if (inputs.gradient_factor.defined()) g = g * inputs.gradient_factor;
    const at::Tensor new_m = m + (g - m) * f[kShare1], new_v = v * f[kBeta2] + g * g * f[kShare2];
    const at::Tensor p = updated(f, update.arrays.master, new_m, new_v);
    write_unless_skipped(m, new_m, inputs.skip);
    write_unless_skipped(v, new_v, inputs.skip);
    write_parameter(update.arrays, p, inputs.skip);
  }

  at::Tensor widened_on_host(const Part& part, size_t m) const {
    const Moment& moment = part.moments[m];
    at::Tensor out = at::empty({part.count}, at::kFloat);
    for (const Chunk& chunk : chunks_of(part)) {
      const at::Tensor blocks =
          codes(m, moment.codes.device())
              .widened(chunk.blocks(part, moment.codes, code_of_zero(kFormats[m].is_signed)),
                       moment.scales.narrow(0, chunk.first_block - part.first_block(), chunk.num_blocks));
      out.narrow(0, chunk.begin - part.begin, chunk.end - chunk.begin).copy_(chunk.elements(blocks));
    }
    return out;
  }

  // A checkpoint of AdamW has no scales: they are the largest magnitudes of the blocks' parts here.
  void restore(Part& part, size_t m, const ReadOwnState& read) const {
    Moment& moment = part.moments[m];
    const at::Tensor values = at::zeros({part.count}, at::kFloat);
    if (!read(part.parameter, kFormats[m].name, part.begin, values)) values.zero_();
    if (!part.is_quantized()) {
      moment.codes.copy_(values);
      return;
    }
    at::Tensor scales = at::zeros({part.num_blocks()}, at::kFloat);
    const bool has_scales = read(part.parameter, kFormats[m].scale_name, part.first_block(), scales);
    for (const Chunk& chunk : chunks_of(part)) {
      const at::Tensor blocks = chunk.blocks(part, values, 0);
      const int64_t block = chunk.first_block - part.first_block();
      const at::Tensor of_chunk = scales.narrow(0, block, chunk.num_blocks);
      if (!has_scales) of_chunk.copy_(blocks.abs().amax(1));
      const at::Tensor nearest = codes(m, at::kCPU).nearest(blocks, of_chunk);
      moment.codes.narrow(0, chunk.begin - part.begin, chunk.end - chunk.begin).copy_(chunk.elements(nearest));
    }
    moment.scales.copy_(scales);
  }

  const std::vector<OptimizerGroup> groups_;
  const FlatLayout layout_;
  std::map<std::pair<int, int64_t>, int64_t> shared_;  // (parameter, block) -> its place among the shared blocks
  std::map<int, Part> parts_;
  mutable std::map<std::pair<size_t, std::string>, std::unique_ptr<Codes>> codes_;
};

}  // namespace

std::unique_ptr<FlatOptimizer> make_adam_8bit(const OptimizerGroups& groups, FlatLayout layout) {
  return std::make_unique<Adam8bit>(groups, layout);
}

}  // namespace dslaunch::runtime::optim
