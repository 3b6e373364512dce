// Adafactor as torch.optim.Adafactor computes it: the second moment of a matrix is the product of two vectors, means
// over its rows and over its columns; vectors have a second moment for each element.
//
// A parameter may lie on several data ranks. Each adds up the squares of its part in double, by row, by column and for
// the norms; the sums of all ranks are all-gathered and added in rank order, so that any sharding gives the same means
// to the last bits of a double, and every rank that holds a part of a matrix keeps the same means.
#include "runtime/optim/algorithms.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "runtime/optim/step_choice.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime::optim {
namespace {

const std::string kRows = "row_var", kColumns = "col_var", kVariance = "variance";

// A tensor of two or more dims as a batch of matrices: its last two dims.
struct Matrices {
  int64_t batch = 1, rows = 1, columns = 1;
  int64_t size() const { return rows * columns; }  // of one
};

bool is_factored(const ParameterInfo& info) {
  return info.shape.size() >= 2;
}

Matrices matrices_of(const ParameterInfo& info) {
  const auto& shape = info.shape;
  Matrices out{.rows = shape[shape.size() - 2], .columns = shape.back()};
  out.batch = info.numel / out.size();
  return out;
}

// The smallest block of whole rows of one matrix, or of whole matrices, around elements of a parameter.
struct Block {
  int64_t first = 0;  // element of the parameter
  Matrices shape;

  Block(const Matrices& all, int64_t begin, int64_t count) {
    const int64_t last = begin + count - 1, matrix = begin / all.size(), last_matrix = last / all.size();
    if (matrix == last_matrix) {
      first = begin / all.columns * all.columns;
      shape = {1, last / all.columns - begin / all.columns + 1, all.columns};
    } else {
      first = matrix * all.size();
      shape = {last_matrix - matrix + 1, all.rows, all.columns};
    }
  }

  // `values`: the elements from `begin` on; zero around them.
  at::Tensor view(const at::Tensor& values, int64_t begin) const {
    const int64_t numel = shape.batch * shape.size();
    if (values.numel() == numel) return values.view({shape.batch, shape.rows, shape.columns});
    at::Tensor out = at::zeros({numel}, values.options());
    out.narrow(0, begin - first, values.numel()).copy_(values);
    return out.view({shape.batch, shape.rows, shape.columns});
  }
};

// This rank's part of a parameter.
struct Part {
  StateArrays arrays;  // narrowed to it
  int parameter = 0;
  int set = 0;  // of coefficients
  int64_t begin = 0;
};

// Where the sums of a parameter lie among those of all: of its squares, then by row, then by column.
struct SumPlaces {
  std::vector<int64_t> first;  // by parameter
  int64_t numel = 0;
};

at::Tensor sum_of_squares(const at::Tensor& values) {
  return values.square().sum(at::kDouble);
}

class Adafactor final : public FlatOptimizer {
 public:
  Adafactor(const OptimizerGroups& groups, FlatLayout layout) : groups_(groups.groups), layout_(layout) {
    DSL_CHECK(layout.table != nullptr && layout.groups != nullptr, "Adafactor needs the layout of the parameters");
    for (const auto& info : layout.table->parameters) {
      places_.first.push_back(places_.numel);
      places_.numel += 1;
      if (!is_factored(info) || info.numel == 0) continue;
      const Matrices all = matrices_of(info);
      places_.numel += all.batch * (all.rows + all.columns);
    }
  }

  const std::vector<std::string>& moment_names(int) const override {
    static const std::vector<std::string> kNone;
    return kNone;
  }

  int64_t own_state_bytes(std::span<const StateSpan> spans) const override {
    int64_t numel = 0;
    for (const auto& span : spans) {
      for (const auto& state : plan_state(span)) numel += state.numel;
    }
    return numel * static_cast<int64_t>(sizeof(float));
  }

  void allocate_own_state(std::span<const SpanState> states) override {
    state_.clear();
    for (const auto& [span, arrays] : states) {
      for (auto& planned : plan_state(span)) {
        planned.values = at::zeros({planned.numel}, arrays.master.options());
        index_[{planned.parameter, planned.name}] = state_.size();
        state_.push_back(std::move(planned));
      }
    }
  }

  std::vector<OwnState> own_state() const override {
    std::vector<OwnState> out;
    for (const auto& state : state_) {
      if (state.is_owner) out.push_back({state.parameter, state.name, state.begin, state.values});
    }
    return out;
  }

  void restore_own_state(const ReadOwnState& read) override {
    for (const auto& state : state_) {
      const at::Tensor values = at::zeros({state.numel}, at::kFloat);
      if (!read(state.parameter, state.name, state.begin, values)) values.zero_();
      state.values.copy_(values);
    }
  }

  void step(std::span<const SpanState> states, const StepInputs& inputs) const override {
    if (states.empty()) return;
    const at::Device device = states[0].arrays.master.device();
    check_inputs(inputs, device);
    for (const auto& state : states) check_state(state, device, groups_.size(), 0);
    if (device.is_cpu() && is_skipped(inputs)) return;
    const at::NoGradGuard no_grad;
    const std::vector<Part> parts = parts_of(states, inputs);
    const at::Tensor coefficients = coefficients_by_set(inputs, device);
    const at::Tensor sums = total(first_sums(parts, inputs, device));
    for (const auto& part : parts) advance(part, inputs, coefficients[part.set], sums);

    at::Tensor update_sums = at::zeros({num_parameters()}, at::TensorOptions().dtype(at::kDouble).device(device));
    std::vector<at::Tensor> updates;
    for (const auto& part : parts) {
      updates.push_back(update_of(part, inputs));
      update_sums[part.parameter].copy_(sum_of_squares(updates.back()));
    }
    update_sums = total(update_sums);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      apply(part, updates[i], coefficients[part.set], sums[places_.first[static_cast<size_t>(part.parameter)]],
            update_sums[part.parameter], inputs);
    }
  }

 private:
  enum Column { kRate, kDecay, kShare };  // of the coefficients

  // Means of rows and columns are whole on every rank that has a part of the matrix.
  struct Means {
    int parameter = 0;
    std::string name;
    int64_t begin = 0, numel = 0;
    bool is_owner = true;  // has the parameter's first element, or alone has these
    at::Tensor values;
  };

  std::vector<Means> plan_state(const StateSpan& span) const {
    std::vector<Means> out;
    for (const auto& piece : pieces_in(layout_.groups->at(static_cast<size_t>(span.flat_group)), span.range)) {
      const ParameterInfo& info = info_of(piece.parameter);
      if (!is_factored(info)) {
        out.push_back({piece.parameter, kVariance, piece.begin, piece.count, true, {}});
        continue;
      }
      const Matrices all = matrices_of(info);
      out.push_back({piece.parameter, kRows, 0, all.batch * all.rows, piece.begin == 0, {}});
      out.push_back({piece.parameter, kColumns, 0, all.batch * all.columns, piece.begin == 0, {}});
    }
    return out;
  }

  const ParameterInfo& info_of(int parameter) const {
    return layout_.table->parameters.at(static_cast<size_t>(parameter));
  }
  int64_t num_parameters() const { return static_cast<int64_t>(layout_.table->parameters.size()); }
  const config::Optimizer& settings_of(const Part& part) const {
    return groups_[MomentStarts::group_of_set(static_cast<size_t>(part.set), groups_.size())].settings;
  }
  const at::Tensor& state_of(const Part& part, const std::string& name) const {
    return state_.at(index_.at({part.parameter, name})).values;
  }

  std::vector<Part> parts_of(std::span<const SpanState> states, const StepInputs& inputs) const {
    std::vector<Part> parts;
    for (const auto& [span, arrays] : states) {
      for (const auto& piece : pieces_in(layout_.groups->at(static_cast<size_t>(span.flat_group)), span.range)) {
        const int set = inputs.starts().set_of(piece.parameter, span.optimizer_group, groups_.size());
        parts.push_back({narrow(arrays, piece.offset, piece.count), piece.parameter, set, piece.begin});
      }
    }
    return parts;
  }

  // fp64 [sets, 3], selected by the device where the host does not know the count of applied steps.
  at::Tensor coefficients_by_set(const StepInputs& inputs, at::Device device) const {
    const size_t num_sets = inputs.starts().num_sets(groups_.size());
    at::Tensor rows = host_memory_for(
        device, {static_cast<int64_t>(inputs.rates.size()), static_cast<int64_t>(num_sets), 3}, at::kDouble);
    auto* next = rows.mutable_data_ptr<double>();
    for (const StepRates& rates : inputs.rates) {
      for (size_t set = 0; set < num_sets; ++set) {
        const size_t group = MomentStarts::group_of_set(set, groups_.size());
        const auto& settings = groups_[group].settings;
        const double lr = rates.of_group(group).lr;
        // At least 1: a possible count before the parameters' first step is never selected.
        const auto step =
            static_cast<double>(std::max<int64_t>(1, inputs.starts().step_of_set(set, groups_.size(), rates.step)));
        *next++ = std::min(lr, 1.0 / std::sqrt(step));
        *next++ = lr * settings.weight_decay;
        *next++ = std::pow(step, settings.beta2_decay);
      }
    }
    rows = rows.to(device, /*non_blocking=*/true);
    if (!inputs.applied_steps.defined()) return rows[0];
    return rows.index_select(0, (inputs.applied_steps - (inputs.rates[0].step - 1)).view({1}))[0];
  }

  at::Tensor gradient_of(const Part& part, const StepInputs& inputs) const {
    at::Tensor gradient = part.arrays.gradient.to(at::kFloat);
    if (inputs.gradient_factor.defined()) gradient = gradient * inputs.gradient_factor;
    return settings_of(part).maximize ? -gradient : gradient;
  }

  at::Tensor first_sums(const std::vector<Part>& parts, const StepInputs& inputs, at::Device device) const {
    at::Tensor sums = at::zeros({places_.numel}, at::TensorOptions().dtype(at::kDouble).device(device));
    for (const auto& part : parts) {
      const int64_t place = places_.first[static_cast<size_t>(part.parameter)];
      sums[place].copy_(sum_of_squares(part.arrays.master));
      if (!is_factored(info_of(part.parameter))) continue;
      const Matrices all = matrices_of(info_of(part.parameter));
      const Block block(all, part.begin, part.arrays.master.numel());
      const at::Tensor squares = block.view(gradient_of(part, inputs).square(), part.begin);
      const int64_t row = block.first / all.columns, column = block.first / all.size() * all.columns;
      sums.narrow(0, place + 1 + row, block.shape.batch * block.shape.rows)
          .copy_(squares.sum(-1, false, at::kDouble).flatten());
      sums.narrow(0, place + 1 + all.batch * all.rows + column, block.shape.batch * block.shape.columns)
          .copy_(squares.sum(-2, false, at::kDouble).flatten());
    }
    return sums;
  }

  // The sum over the data ranks, in their order.
  at::Tensor total(const at::Tensor& own) const {
    if (layout_.ranks == nullptr) return own;
    at::Tensor all = at::empty({layout_.ranks->size(), own.numel()}, own.options());
    layout_.ranks->all_gather({own.const_data_ptr(), own.nbytes(), comm::DType::kUInt8},
                              {all.mutable_data_ptr(), all.nbytes(), comm::DType::kUInt8});
    return all.sum(0);
  }

  // Moves the means, unless the step is skipped.
  void advance(const Part& part, const StepInputs& inputs, const at::Tensor& coefficients,
               const at::Tensor& sums) const {
    const at::Tensor share = coefficients[kShare].to(at::kFloat);
    const auto move = [&](const at::Tensor& mean, const at::Tensor& now) {
      write_unless_skipped(mean, mean + (now - mean) * share, inputs.skip);
    };
    if (!is_factored(info_of(part.parameter))) {
      return move(state_of(part, kVariance), gradient_of(part, inputs).square());
    }
    const Matrices all = matrices_of(info_of(part.parameter));
    const int64_t rows = places_.first[static_cast<size_t>(part.parameter)] + 1, num_rows = all.batch * all.rows;
    const auto mean_of = [&](int64_t first, int64_t count, int64_t divisor) {
      return (sums.narrow(0, first, count) / static_cast<double>(divisor)).to(at::kFloat);
    };
    move(state_of(part, kRows), mean_of(rows, num_rows, all.columns));
    move(state_of(part, kColumns), mean_of(rows + num_rows, all.batch * all.columns, all.rows));
  }

  at::Tensor second_moment(const Part& part) const {
    const ParameterInfo& info = info_of(part.parameter);
    if (!is_factored(info)) return state_of(part, kVariance);
    const Matrices all = matrices_of(info);
    const int64_t count = part.arrays.master.numel();
    const Block block(all, part.begin, count);
    const Matrices& shape = block.shape;
    const int64_t matrix = block.first / all.size();
    const at::Tensor row_means = state_of(part, kRows), column_means = state_of(part, kColumns);
    const at::Tensor rows = row_means.narrow(0, block.first / all.columns, shape.batch * shape.rows);
    const at::Tensor columns = column_means.narrow(0, matrix * all.columns, shape.batch * shape.columns);
    const at::Tensor mean = row_means.view({all.batch, all.rows}).mean(-1).clamp_min(eps_of(part));
    const at::Tensor product = rows.view({shape.batch, shape.rows, 1}) * columns.view({shape.batch, 1, shape.columns}) /
                               mean.narrow(0, matrix, shape.batch).view({shape.batch, 1, 1});
    return product.flatten().narrow(0, part.begin - block.first, count);
  }

  double eps_of(const Part& part) const {
    return settings_of(part).eps1.value_or(std::numeric_limits<float>::epsilon());
  }

  at::Tensor update_of(const Part& part, const StepInputs& inputs) const {
    const double eps = eps_of(part);
    return gradient_of(part, inputs) / second_moment(part).clamp_min(eps * eps).sqrt();
  }

  // The two sums are those of the whole parameter: of its squares and of its update's.
  void apply(const Part& part, const at::Tensor& update, const at::Tensor& coefficients, const at::Tensor& squares,
             const at::Tensor& update_squares, const StepInputs& inputs) const {
    const auto& settings = settings_of(part);
    const double root = std::sqrt(static_cast<double>(info_of(part.parameter).numel));
    const at::Tensor size = (squares.sqrt() / root).clamp_min(settings.eps2) * coefficients[kRate];
    const at::Tensor excess = (update_squares.sqrt() / (root * settings.clip_threshold)).clamp_min(1.0);
    const at::Tensor step = (size / excess).to(at::kFloat), decay = coefficients[kDecay].to(at::kFloat);
    const at::Tensor& master = part.arrays.master;
    write_parameter(part.arrays, master - (update * step + master * decay), inputs.skip);
  }

  const std::vector<OptimizerGroup> groups_;
  const FlatLayout layout_;
  SumPlaces places_;
  std::vector<Means> state_;
  std::map<std::pair<int, std::string>, size_t> index_;
};

}  // namespace

std::unique_ptr<FlatOptimizer> make_adafactor(const OptimizerGroups& groups, FlatLayout layout) {
  return std::make_unique<Adafactor>(groups, layout);
}

}  // namespace dslaunch::runtime::optim
