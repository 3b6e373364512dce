// Reads slices of a model's tensors from a directory of save_pretrained (safetensors, one file or several with an
// index). Files are mapped, and pages that were read are dropped, so that memory stays small however large a file is.
// Immutable; any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/state/hugging_face_facts.hpp"
#include "runtime/state/safetensors_file.hpp"

namespace dslaunch::runtime {

class HuggingFaceWeights {
 public:
  // A tensor of the model as the files have it.
  struct Part {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    HuggingFacePiece piece;
  };
  using Located = std::vector<Part>;

  // Opens the file `single` of the directory, or all files of its index. Throws UserError: 66 if the
  // directory does not exist, 65 if it has no safetensors weights, if a file of the index is missing, or if one is
  // invalid.
  explicit HuggingFaceWeights(std::string directory, const std::string& single = "model.safetensors");

  // Throws UserError(65) that names tensors of the model which the directory does not have, and tensors of the
  // directory which the model does not have. Not for adapters.
  void require_names(const HuggingFaceFacts& facts) const;
  // Throws UserError(65) if it is missing or has another shape than `shape`.
  Located locate(const HuggingFaceFacts& facts, const std::string& state_name, const std::vector<int64_t>& shape) const;
  // A tensor with this name in the files. Throws as above.
  Located locate_file_tensor(const std::string& name, const std::vector<int64_t>& shape) const;

  // Elements [begin, begin + out.numel()) of the flattened tensor, cast to the dtype of `out` (1-D, CPU). Throws
  // UserError(65) for integers where floating-point numbers are wanted, or the other way round.
  void read(const Located& tensor, int64_t begin, at::Tensor out) const;

  const std::string& directory() const { return directory_; }

 private:
  struct Place {
    size_t file = 0;
    const SafetensorsEntry* entry = nullptr;
  };

  void open(const std::string& name);
  const Place* find(const std::string& name) const;
  // The pieces in the files that make up a tensor of the state_dict; empty: it is not there.
  std::vector<HuggingFacePiece> resolve(const HuggingFaceFacts& facts, const std::string& state_name) const;
  Part part_of(const HuggingFacePiece& piece, const std::vector<int64_t>& shape) const;

  const std::string directory_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::map<std::string, Place> places_;  // by name in the files
};

}  // namespace dslaunch::runtime
