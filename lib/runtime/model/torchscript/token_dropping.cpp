#include "runtime/model/torchscript/token_dropping.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

[[noreturn]] void refuse(const std::string& unit, const std::string& why) {
  throw UserError(ExitCode::kBadInput,
                  fmt::format("random_ltd cannot drop tokens of unit '{}': {}; leave its layer out of "
                              "random_ltd_layer_id, or switch random_ltd off",
                              unit, why));
}

// `num_kept` of `length` positions, ascending, for each of `rows` samples: each choice with the same probability.
at::Tensor draw_positions(int64_t rows, int64_t length, int64_t num_kept, uint64_t key) {
  at::Tensor out = at::empty({rows, num_kept}, at::kLong);
  int64_t* next = out.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    int64_t missing = num_kept;
    for (int64_t position = 0; missing > 0; ++position) {
      key = mix64(key);
      const auto left = static_cast<uint64_t>(length - position);
      if (static_cast<int64_t>((key >> 32) * left >> 32) >= missing) continue;
      *next++ = position;
      missing -= 1;
    }
  }
  return out;
}

// The dims of the unit's hidden states, and the kept positions.
struct Kept {
  at::Tensor positions;  // [samples, kept], int64
  int64_t samples = 0, length = 0;
  int64_t sample_dim = 0, position_dim = 1;  // of hidden states

  int64_t count() const { return positions.size(1); }
  // As indices along `dim` of a tensor with samples in `of_samples`.
  at::Tensor index_for(const at::Tensor& tensor, int64_t of_samples, int64_t dim) const {
    std::vector<int64_t> shape(static_cast<size_t>(tensor.dim()), 1), full = tensor.sizes().vec();
    shape[static_cast<size_t>(of_samples)] = samples;
    shape[static_cast<size_t>(dim)] = full[static_cast<size_t>(dim)] = count();
    at::Tensor ordered = of_samples < dim ? positions : positions.t();
    return ordered.reshape(shape).expand(full).to(tensor.device());
  }
  at::Tensor hidden_index(const at::Tensor& hidden) const { return index_for(hidden, sample_dim, position_dim); }
};

// Positions of a mask or a table beside the hidden states, with samples (or one for all) in its first dim.
at::Tensor gather_beside(const at::Tensor& tensor, const Kept& kept, const std::vector<int64_t>& dims) {
  at::Tensor out = tensor;
  if (out.size(0) != kept.samples) {
    std::vector<int64_t> shape = out.sizes().vec();
    shape[0] = kept.samples;
    out = out.expand(shape);
  }
  for (const int64_t dim : dims) out = out.gather(dim, kept.index_for(out, 0, dim));
  return out;
}

class KeptCall {
 public:
  KeptCall(const TokenDroppingOptions& options, const TokenDropping::Unit& unit, const Kept& kept)
      : options_(options), unit_(unit), kept_(kept) {}

  c10::IValue argument(const c10::IValue& value, bool is_mask) const {
    if (value.isInt() && value.toInt() == kept_.length) {
      refuse(unit_.name, fmt::format("it takes the number {}, which may be the length of the sequence", kept_.length));
    }
    if (value.isTuple()) {
      std::vector<c10::IValue> parts;
      for (const auto& part : value.toTupleRef().elements()) parts.push_back(argument(part, is_mask));
      return c10::ivalue::Tuple::create(std::move(parts));
    }
    return value.isTensor() && value.toTensor().defined() ? c10::IValue(tensor(value.toTensor(), is_mask)) : value;
  }

  c10::IValue result(const c10::IValue& value, const at::Tensor& hidden) const {
    if (value.isTensor()) return scatter(value.toTensor(), hidden);
    if (!value.isTuple() || value.toTupleRef().elements().empty() || !value.toTupleRef().elements()[0].isTensor()) {
      refuse(unit_.name, "it returns neither a tensor nor a tuple that begins with one");
    }
    std::vector<c10::IValue> parts(value.toTupleRef().elements().begin(), value.toTupleRef().elements().end());
    parts[0] = scatter(parts[0].toTensor(), hidden);
    const auto type = value.toTuple()->type();
    return type->schema() ? c10::ivalue::Tuple::createNamed(std::move(parts), type)
                          : c10::ivalue::Tuple::create(std::move(parts));
  }

 private:
  at::Tensor tensor(const at::Tensor& value, bool is_mask) const {
    std::vector<int64_t> dims;
    for (int64_t dim = 1; dim < value.dim(); ++dim) {
      if (value.size(dim) == kept_.length) dims.push_back(dim);
    }
    const bool is_square = value.dim() == 2 && value.size(0) == kept_.length && value.size(1) == kept_.length;
    if (is_square && options_.is_decoder) {  // causal: the same for any ascending positions
      return value.narrow(0, 0, kept_.count()).narrow(1, 0, kept_.count());
    }
    const bool has_samples = value.dim() >= 2 && (value.size(0) == 1 || value.size(0) == kept_.samples);
    if (dims.empty() && (value.dim() == 0 || value.size(0) != kept_.length || has_samples)) return value;
    const bool is_pairs = value.dim() == 4 && dims == std::vector<int64_t>{2, 3};  // attention's mask
    if (!has_samples || (dims.size() > 1 && !is_pairs && !is_mask)) {
      refuse(unit_.name, fmt::format("an argument is [{}], and it is not known which dims are the {} positions",
                                     fmt::join(value.sizes(), ", "), kept_.length));
    }
    return gather_beside(value, kept_, dims);
  }

  at::Tensor scatter(const at::Tensor& out, const at::Tensor& hidden) const {
    std::vector<int64_t> expected = hidden.sizes().vec();
    expected[static_cast<size_t>(kept_.position_dim)] = kept_.count();
    if (out.sizes() != at::IntArrayRef(expected)) {
      refuse(unit_.name, fmt::format("it returns [{}] for hidden states [{}]", fmt::join(out.sizes(), ", "),
                                     fmt::join(expected, ", ")));
    }
    return hidden.to(out.scalar_type()).scatter(kept_.position_dim, kept_.hidden_index(hidden), out);
  }

  const TokenDroppingOptions& options_;
  const TokenDropping::Unit& unit_;
  const Kept& kept_;
};

}  // namespace

void TokenDropping::begin_step(int64_t step, int64_t num_kept) {
  step_ = step;
  num_kept_ = num_kept;
  num_calls_.clear();
}

recomputation::UnitBody TokenDropping::wrap(int unit, recomputation::UnitBody body) {
  const uint64_t seed = mix64(mix64(options_.seed) ^ static_cast<uint64_t>(step_));
  const uint64_t key = mix64(mix64(seed ^ static_cast<uint64_t>(unit)) ^ num_calls_[unit]++);
  return [this, unit, key, num_kept = num_kept_, body = std::move(body)](torch::jit::Stack arguments) {
    const Unit& of = units_.at(unit);
    if (arguments.empty() || !arguments[0].isTensor() || arguments[0].toTensor().dim() != 3) {
      refuse(of.name, "its first argument is not a tensor of hidden states with 3 dims");
    }
    const at::Tensor hidden = arguments[0].toTensor();
    Kept kept;
    kept.sample_dim = options_.batch_first ? 0 : 1;
    kept.position_dim = 1 - kept.sample_dim;
    kept.samples = hidden.size(kept.sample_dim);
    kept.length = hidden.size(kept.position_dim);
    if (num_kept >= kept.length) return body(std::move(arguments));
    kept.positions = draw_positions(kept.samples, kept.length, num_kept, key);
    const KeptCall call(options_, of, kept);
    arguments[0] = hidden.gather(kept.position_dim, kept.hidden_index(hidden));
    for (size_t i = 1; i < arguments.size(); ++i) {
      arguments[i] = call.argument(arguments[i], static_cast<int>(i) == of.mask);
    }
    return call.result(body(std::move(arguments)), hidden);
  };
}

}  // namespace dslaunch::runtime::model::torchscript
