#include "runtime/state/hugging_face_weights.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/join_some.hpp"
#include "base/json_depth.hpp"
#include "base/nearest_name.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Part = HuggingFaceWeights::Part;

constexpr size_t kBytesAhead = 64 << 20;   // reads that are under way while a chunk is copied
constexpr int64_t kChunkBytes = 32 << 20;  // between two drops of the pages that were read
constexpr size_t kMaxNamesShown = 6;
// Buffers that earlier versions of transformers saved and later ones compute.
constexpr std::string_view kComputedBuffers[] = {".inv_freq", ".masked_bias", ".attn.bias", ".position_ids",
                                                 ".attention.bias"};

[[noreturn]] void refuse(const std::string& directory, const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("the directory '{}' {}", directory, what));
}

std::string shortened(const std::vector<std::string>& names) {
  return join_some(names, kMaxNamesShown);
}

// The directory may have been saved from the model without its head, whose names have no first component
// ("transformer."), or the name of a tied tensor may be the one that is left out today.
std::string without_first_component(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? std::string() : name.substr(dot + 1);
}

bool is_computed(const std::string& name) {
  const std::string dotted = "." + name;
  return std::any_of(std::begin(kComputedBuffers), std::end(kComputedBuffers),
                     [&](std::string_view ending) { return dotted.ends_with(ending); });
}

// Copies `count` elements from `first` of an entry on. `out`: 1-D, maybe with a stride.
void copy_elements(const Part& part, int64_t first, int64_t count, const at::Tensor& out) {
  const auto& file = part.file->file();
  const auto size = static_cast<int64_t>(c10::elementSize(part.entry->dtype));
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const int64_t chunk = kChunkBytes / size;
  const auto byte_of = [&](int64_t element) {
    return part.entry->begin + static_cast<size_t>((first + element) * size);
  };
  const auto read_ahead = [&](size_t from, size_t to) {
    if (from < to) file->read_ahead(from, to - from);
  };
  read_ahead(byte_of(0), std::min(byte_of(count), byte_of(0) + kBytesAhead));
  for (int64_t at = 0; at < count; at += chunk) {
    const int64_t n = std::min(chunk, count - at);
    const size_t begin = byte_of(at), end = byte_of(at + n);
    read_ahead(begin + kBytesAhead, std::min(end + kBytesAhead, byte_of(count)));
    out.narrow(0, at, n).copy_(tensor_over(file, begin, part.entry->dtype, {n}));
    file->drop_pages(begin / page * page, end - begin / page * page);
  }
}

// The part of [begin, end) that elements `base` + i · `stride`, i < `count`, of the model's tensor lie in. `first`: of
// these elements in the entry.
void copy_row(const Part& part, int64_t first, int64_t base, int64_t stride, int64_t count, int64_t begin,
              const at::Tensor& out) {
  const int64_t end = begin + out.numel();
  const int64_t low = std::max<int64_t>(0, (begin - base + stride - 1) / stride);
  const int64_t high = std::min(count, (end - base + stride - 1) / stride);
  if (base >= end || low >= high) return;
  const int64_t target = base + low * stride - begin;
  copy_elements(part, first + low, high - low, out.slice(0, target, target + (high - low - 1) * stride + 1, stride));
}

// Elements that lie back to back in the file lie in rows in the model's tensor.
void copy_rows(const Part& part, int64_t begin, const at::Tensor& out) {
  const auto& piece = part.piece;
  const size_t dims = piece.shape.size();
  const int64_t columns = piece.shape.back(), stride = std::max<int64_t>(piece.strides.back(), 1);
  std::vector<int64_t> index(dims, 0);
  for (int64_t first = 0, numel = piece.numel(); first < numel; first += columns) {
    int64_t base = piece.offset;
    for (size_t i = 0; i + 1 < dims; ++i) base += index[i] * piece.strides[i];
    copy_row(part, first, base, stride, columns, begin, out);
    for (size_t i = dims - 1; i-- > 0;) {
      if (++index[i] < piece.shape[i]) break;
      index[i] = 0;
    }
  }
}

int64_t numel_of_part(const Part& part) {
  int64_t out = 1;
  for (int64_t size : part.entry->shape) out *= size;
  return out;
}

// The names of the files that the index of `single` lists.
std::set<std::string> files_of_index(const std::string& directory, const std::string& single) {
  const std::string index = directory + "/" + single + ".index.json";
  std::error_code error;
  if (!fs::exists(index, error)) {
    const bool has_pickles = fs::exists(directory + "/pytorch_model.bin", error) ||
                             fs::exists(directory + "/pytorch_model.bin.index.json", error);
    refuse(directory, fmt::format("has no {} and no index of several files{}", single,
                                  has_pickles ? ", only pytorch_model.bin: save it again with save_pretrained of a "
                                                "current transformers"
                                              : ""));
  }
  const auto file = MappedFile::open(index, "index");
  const std::string text(reinterpret_cast<const char*>(file->data()), file->size());
  const auto json = nests_deeper(text, 16) ? Json() : Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    refuse(directory, fmt::format("has a damaged index: {}.index.json has no \"weight_map\"", single));
  }
  std::set<std::string> names;
  for (const auto& [tensor, name] : json["weight_map"].items()) {
    // A name with a slash would lead out of the directory.
    if (!name.is_string() || name.get<std::string>().find('/') != std::string::npos) {
      refuse(directory, fmt::format("has a damaged index: the file of '{}' in {}.index.json", tensor, single));
    }
    names.insert(name.get<std::string>());
  }
  for (const auto& name : names) {
    if (fs::exists(directory + "/" + name, error)) continue;
    refuse(directory, fmt::format("has no '{}', which its index lists: is the download complete?", name));
  }
  return names;
}

// Integers for a weight are a quantized model, or another one; casting them would train from 1e9.
void require_kind(const std::string& directory, const HuggingFaceWeights::Part& part, at::ScalarType wanted) {
  const at::ScalarType given = part.entry->dtype;
  if (c10::isFloatingType(given) == c10::isFloatingType(wanted)) return;
  refuse(directory, fmt::format("has '{}' as {}, and the model's is {}: its values are not those of the model",
                                part.entry->name, c10::toString(given), c10::toString(wanted)));
}

}  // namespace

HuggingFaceWeights::HuggingFaceWeights(std::string directory, const std::string& single)
    : directory_(std::move(directory)) {
  std::error_code error;
  if (!fs::is_directory(directory_, error)) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("cannot read the weights in '{}': {}{}", directory_,
                                fs::exists(directory_, error) ? "it is not a directory" : "no such directory",
                                did_you_mean_file(directory_)));
  }
  if (fs::exists(directory_ + "/" + single, error)) {
    open(single);
  } else {
    for (const auto& name : files_of_index(directory_, single)) open(name);
  }
}

void HuggingFaceWeights::open(const std::string& name) {
  files_.push_back(std::make_unique<SafetensorsFile>(directory_ + "/" + name, "weights"));
  for (const auto& entry : files_.back()->entries()) places_[entry.name] = {files_.size() - 1, &entry};
}

const HuggingFaceWeights::Place* HuggingFaceWeights::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

std::vector<HuggingFacePiece> HuggingFaceWeights::resolve(const HuggingFaceFacts& facts,
                                                          const std::string& state_name) const {
  std::vector<std::string> names{state_name};
  for (const auto& [other, name] : facts.tied) {
    if (name == state_name) names.push_back(other);
  }
  for (const bool has_prefix : {true, false}) {
    const auto in_files = [&](const std::string& name) { return has_prefix ? name : without_first_component(name); };
    auto pieces = facts.pieces_of(state_name);
    for (auto& piece : pieces) piece.name = in_files(piece.name);
    if (std::all_of(pieces.begin(), pieces.end(), [&](const auto& piece) { return find(piece.name) != nullptr; })) {
      return pieces;
    }
    for (const auto& name : names) {
      HuggingFacePiece whole;
      whole.name = in_files(name);
      if (find(whole.name) != nullptr) return {whole};
    }
  }
  return {};
}

void HuggingFaceWeights::require_names(const HuggingFaceFacts& facts) const {
  if (!facts.unmapped.empty()) {
    refuse(directory_, fmt::format("cannot be read part by part for {}: it has {} in another form than the model does; "
                                   "export the model with its weights",
                                   facts.model_class, shortened(facts.unmapped)));
  }
  std::vector<std::string> missing, unexpected;
  std::set<std::string> used;
  for (const auto& [name, state_name] : facts.parameters) {
    const auto pieces = resolve(facts, state_name);
    if (pieces.empty()) missing.push_back(state_name);
    for (const auto& piece : pieces) used.insert(piece.name);
  }
  for (const auto& [other, name] : facts.tied) used.insert({other, without_first_component(other)});
  for (const auto& [name, place] : places_) {
    if (!used.count(name) && !is_computed(name)) unexpected.push_back(name);
  }
  if (missing.empty() && unexpected.empty()) return;
  std::string what;
  if (!missing.empty()) what = fmt::format("has no {}", shortened(missing));
  if (!unexpected.empty()) {
    what +=
        fmt::format("{}has {}, which the model does not have", missing.empty() ? "" : ", and ", shortened(unexpected));
  }
  refuse(directory_, fmt::format("does not have the weights of this {}: it {}; tools/export without --empty gives new "
                                 "tensors random values and leaves others out",
                                 facts.model_class, what));
}

HuggingFaceWeights::Part HuggingFaceWeights::part_of(const HuggingFacePiece& piece,
                                                     const std::vector<int64_t>& shape) const {
  const Place* place = find(piece.name);
  if (place == nullptr) refuse(directory_, fmt::format("has no '{}'", piece.name));
  const auto& expected = piece.is_whole ? shape : piece.shape;
  if (place->entry->shape != expected) {
    refuse(directory_, fmt::format("has '{}' with shape [{}], but the model has [{}]", piece.name,
                                   fmt::join(place->entry->shape, ", "), fmt::join(expected, ", ")));
  }
  return {files_[place->file].get(), place->entry, piece};
}

HuggingFaceWeights::Located HuggingFaceWeights::locate(const HuggingFaceFacts& facts, const std::string& state_name,
                                                       const std::vector<int64_t>& shape) const {
  Located out;
  int64_t numel = 1, located = 0;
  for (int64_t size : shape) numel *= size;
  const auto pieces = resolve(facts, state_name);
  if (pieces.empty()) refuse(directory_, fmt::format("has no '{}'", state_name));
  for (const auto& piece : pieces) {
    out.push_back(part_of(piece, shape));
    located += numel_of_part(out.back());
    if (!piece.is_whole && piece.end() > numel) located = -1;
    if (located < 0) break;
  }
  if (located == numel) return out;
  refuse(directory_,
         fmt::format("has '{}' in pieces that do not make up its shape [{}]", state_name, fmt::join(shape, ", ")));
}

HuggingFaceWeights::Located HuggingFaceWeights::locate_file_tensor(const std::string& name,
                                                                   const std::vector<int64_t>& shape) const {
  HuggingFacePiece whole;
  whole.name = name;
  return {part_of(whole, shape)};
}

void HuggingFaceWeights::read(const Located& tensor, int64_t begin, at::Tensor out) const {
  const int64_t end = begin + out.numel();
  for (const auto& part : tensor) {
    require_kind(directory_, part, out.scalar_type());
    if (!part.piece.is_whole && !part.piece.is_contiguous()) {
      copy_rows(part, begin, out);
      continue;
    }
    const int64_t start = part.piece.is_whole ? 0 : part.piece.offset;
    const int64_t low = std::max(begin, start), high = std::min(end, start + numel_of_part(part));
    if (low < high) copy_elements(part, low - start, high - low, out.narrow(0, low - begin, high - low));
  }
}

}  // namespace dslaunch::runtime
