// A model with its weights, ready to call; for inference, without an engine. One thread.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "runtime/generated_kernels/kernel_library.hpp"
#include "runtime/model/interface/graph_pass_options.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/model/interface/quantized_layers.hpp"
#include "runtime/state/hugging_face_facts.hpp"

namespace dslaunch::runtime::engine::inference {

struct ModelSource {
  // A model file, a checkpoint, or a directory of checkpoints (the newest is taken).
  std::string path;
  // Of a model file: a directory of Hugging Face's weights, as `consolidate --hf` writes it. Empty: those of the file,
  // or of the directory that an empty export has recorded.
  std::string weights;
  // A file or a directory; empty: where the model comes from, or beside it (tokenizer_codec).
  std::string tokenizer;
  // Where the parameters rest, in a file without a name, and units read them as they run; empty: they are in memory.
  std::string nvme_path;
  at::Device device = at::kCPU;
  // On a GPU: what elementwise operators of a step become. Null: they run one by one.
  std::shared_ptr<generated_kernels::KernelLibrary> kernels = {};
  std::optional<at::ScalarType> dtype = {};  // empty: the types of the file
  // Weights of linear layers are kept in few bits. With `predicts_tokens`, without `nvme_path`. Empty: in `dtype`.
  std::optional<model::WeightType> weight_type = {};
  // Of the ranks that share the GEMMs of the model, which all open it; this one's group. With all weights in memory, in
  // `dtype`. Null: one rank has all of it.
  comm::Communicator* tensor_ranks = nullptr;
  // Forward is cut to what predicts tokens, where that can be done (load_token_model).
  bool predicts_tokens = true;
  // How messages name these options; empty: the command or config has no such option.
  std::string tokenizer_option = "--tokenizer PATH", ids_option = "--ids", context_option = "--context";
};

class InferModel {
 public:
  virtual ~InferModel() = default;
  virtual model::Model& model() = 0;
  virtual const ModelSource& source() const = 0;
  // The file that has the code.
  virtual const std::string& file() const = 0;
  virtual const std::optional<HuggingFaceFacts>& hugging_face() const = 0;
  virtual int64_t weight_bytes() const = 0;
  // What weights are kept as: "bf16", "int8, bf16"; empty: they are the run's.
  virtual std::string weight_types() const { return {}; }
  // The config of the run that has trained it, as JSON; empty: it is not known.
  virtual std::string job_config() const { return {}; }
};

// Plain types of C++'s operators are enough to write texts; what trains faster is left out.
model::GraphPassOptions inference_passes(at::ScalarType compute_dtype);

// Throws UserError: 66 for a path that does not exist, 65 for what has no model (a directory of Hugging Face: with what
// is needed) or no weights, and for one without layers that `weight_type` applies to; SystemError and Error as
// offload::ParameterFile does.
std::unique_ptr<InferModel> open_model(const ModelSource& source);

}  // namespace dslaunch::runtime::engine::inference
