// What tools/export has recorded about a model of Hugging Face's transformers (docs/huggingface.md, Metadata): where it
// comes from, and which names its tensors have in transformers. Plain data; any thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime {

// A tensor of save_pretrained's files: a tensor of the model, or elements of one.
struct HuggingFacePiece {
  std::string name;
  bool is_whole = true;
  // Otherwise its elements, as positions in the contiguous tensor of the model.
  int64_t offset = 0;
  std::vector<int64_t> shape, strides;

  int64_t numel() const;
  // Positions [begin, end) of the model's tensor within which the elements lie.
  int64_t begin() const { return offset; }
  int64_t end() const;
  bool is_contiguous() const;
};

// Merged, a weight is W + scaling · B A, with (B A)ᵀ if `transposed`.
struct LoraMerge {
  std::string a, b;  // names in the model file
  double scaling = 1;
  bool transposed = false;
};

struct HuggingFaceAdapter {
  std::string config;                             // adapter_config.json
  std::string source;                             // a directory or a hub id; empty: a new one
  std::map<std::string, std::string> parameters;  // name in the model file -> name in adapter_model.safetensors
  std::map<std::string, LoraMerge> merges;        // by name in the state_dict
  std::vector<std::string> not_mergeable;         // modules with adapters that are not plain LoRA
};

struct HuggingFaceFacts {
  std::string source_kind;  // "directory", "hub", "architecture"
  std::string source_name, revision;
  std::string model_class;
  std::string config, generation_config;          // JSON; the second may be empty
  std::map<std::string, std::string> parameters;  // name in the model file -> name in the state_dict
  std::map<std::string, std::string> tied;        // other name in the state_dict -> the name that files have
  std::map<std::string, std::vector<HuggingFacePiece>> files;  // by name in the state_dict, where names differ
  std::vector<std::string> unmapped;  // names in files whose values are not elements of the model's tensors
  std::optional<HuggingFaceAdapter> adapter;

  // What the files have of a tensor, by its name in the state_dict: itself, unless `files` lists it.
  std::vector<HuggingFacePiece> pieces_of(const std::string& state_name) const;
};

// Of a record that read_model_metadata() accepted (`text`, may be empty); empty if the model was not exported from
// Hugging Face. Throws UserError(65) naming `path` if the entries are damaged.
std::optional<HuggingFaceFacts> read_hugging_face_facts(const std::string& text, const std::string& path);

}  // namespace dslaunch::runtime
