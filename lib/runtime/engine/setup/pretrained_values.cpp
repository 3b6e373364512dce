#include "runtime/engine/setup/pretrained_values.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/element_init.hpp"
#include "runtime/state/hugging_face_weights.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/write_buffer.hpp"

namespace dslaunch::runtime::engine::setup {
namespace {

using Weights = std::shared_ptr<const HuggingFaceWeights>;
using Read = std::function<void(int64_t begin, at::Tensor out)>;

constexpr char kAdapterFile[] = "adapter_model.safetensors";
constexpr std::string_view kAdapterPrefix = "base_model.model.";  // PEFT's, before names of the model itself

bool is_empty_model(const model::Model& model) {
  bool any = false;
  for (size_t i = 0; i < model.facts.table.parameters.size(); ++i) {
    const bool is_empty = model.initial.is_empty(static_cast<int>(i));
    if (!is_empty && model.facts.table.parameters[i].whole_numel() > 1) return false;
    any |= is_empty;
  }
  return any;
}

Read reader(const Weights& weights, HuggingFaceWeights::Located located) {
  return [weights, located = std::move(located)](int64_t begin, at::Tensor out) {
    weights->read(located, begin, std::move(out));
  };
}

// Where each parameter of the model file comes from.
class Sources {
 public:
  Sources(HuggingFaceFacts facts, const config::Init& init, std::string path)
      : facts_(std::move(facts)),
        init_(init),
        path_(std::move(path)),
        base_(std::make_shared<HuggingFaceWeights>(init.from)) {
    base_->require_names(facts_);
    if (!facts_.adapter) return;
    for (const auto& [weight, merge] : facts_.adapter->merges) zeros_.insert(merge.b);
    open_adapter();
  }

  // `names`: all names of a tensor. An empty function: the record does not explain it.
  Read source_of(const std::vector<std::string>& names, const std::vector<int64_t>& shape) const {
    for (const auto& name : names) {
      if (facts_.adapter && facts_.adapter->parameters.count(name)) return adapter_source(name, shape);
      const auto found = facts_.parameters.find(name);
      if (found != facts_.parameters.end()) return reader(base_, base_->locate(facts_, found->second, shape));
    }
    return {};
  }

 private:
  void open_adapter() {
    const auto& source = facts_.adapter->source;
    if (source.empty()) return;  // a new one
    if (!std::filesystem::is_directory(source)) {
      throw UserError(
          ExitCode::kNoInput,
          fmt::format("the adapter of the model '{}', '{}', is not a directory here: export the model again from "
                      "a directory of the adapter",
                      path_, source));
    }
    adapter_ = std::make_shared<HuggingFaceWeights>(source, kAdapterFile);
  }

  // New adapters as PEFT makes them: what they add is zero, since B is. A has the variance of PEFT's kaiming_uniform_.
  Read adapter_source(const std::string& name, const std::vector<int64_t>& shape) const {
    const auto& file_name = facts_.adapter->parameters.at(name);
    if (adapter_) return reader(adapter_, adapter_->locate_file_tensor(file_name, shape));
    if (zeros_.count(name)) return [](int64_t, at::Tensor out) { out.zero_(); };
    if (file_name.starts_with(kAdapterPrefix)) {  // a copy of the model's own
      const std::string state_name = file_name.substr(kAdapterPrefix.size());
      for (const auto& [own, target] : facts_.parameters) {
        if (target == state_name) return reader(base_, base_->locate(facts_, target, shape));
      }
    }
    const double std = shape.size() == 2 ? 1 / std::sqrt(3.0 * static_cast<double>(shape[1])) : init_.std;
    return [name, dims = shape.size(), seed = init_.seed, std](int64_t begin, at::Tensor out) {
      init_elements(name, dims, seed, std, begin, out);
    };
  }

  const HuggingFaceFacts facts_;
  const config::Init init_;
  const std::string path_;
  Weights base_, adapter_;
  std::set<std::string> zeros_;  // names of B matrices
};

}  // namespace

void take_pretrained_values(model::Model& model, const config::Init& init, const std::string& path, bool replaces) {
  if (init.from.empty() || !(replaces || is_empty_model(model))) return;
  auto facts = read_hugging_face_facts(read_model_metadata(path).text, path);
  if (!facts) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("\"init\": {{\"from\": …}} needs a model that tools/export --hf exported with --empty: '{}' "
                    "does not record the names of its tensors in Hugging Face's files",
                    path));
  }
  const Sources sources(*std::move(facts), init, path);
  std::vector<Read> reads;
  for (const auto& info : model.facts.table.parameters) {
    std::vector<std::string> names{info.name};
    names.insert(names.end(), info.aliases.begin(), info.aliases.end());
    reads.push_back(sources.source_of(names, info.whole_shape()));
    if (reads.back()) continue;
    throw UserError(ExitCode::kBadInput,
                    fmt::format("the model '{}' does not record which of Hugging Face's tensors its "
                                "parameter '{}' is",
                                path, info.name));
  }
  for (auto& [name, value] : model.tensors.buffers()) {
    const auto read = sources.source_of({name}, value.sizes().vec());
    if (!read) continue;  // not a persistent one
    at::Tensor host = at::empty({value.numel()}, value.options());
    read(0, host);
    write_buffer(value, host.view(value.sizes()));
  }
  model.initial.set_source([reads = std::move(reads)](int parameter, int64_t begin, at::Tensor out) {
    reads[static_cast<size_t>(parameter)](begin, std::move(out));
  });
}

}  // namespace dslaunch::runtime::engine::setup
