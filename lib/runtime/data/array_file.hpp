// One data file as a list of arrays in memory: safetensors, .npy, .npz. The file is mapped, so opening reads only the
// headers. Immutable once prepared.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/state/zip_members.hpp"

namespace dslaunch::runtime {

struct FileArray {
  std::string name;  // for an .npy file: its file name without directory and extension
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;
  std::shared_ptr<const void> owner;  // keeps data valid
  std::string path;
  std::shared_ptr<const ZipMember> member = {};  // of an .npz, which prepare() has still to check or to unpack
};

// Before the first use of `data`: compares a member of an .npz with its checksum, and unpacks it if it is compressed,
// so that arrays that nobody uses cost nothing. Nothing for other files. Throws UserError(65).
void prepare(FileArray& array);

enum class FileFormat { kSafetensors, kNpy, kNpz, kTokens, kMegatron };

// `format` as in the config; "auto": by the file's extension, else by its first bytes, else token stream when
// `has_seq_len`. Throws UserError(65) for an unknown format and 66 for a file that cannot be read.
FileFormat file_format(const std::string& path, const std::string& format, bool has_seq_len);

// In the order of the file. Throws UserError (65, 66) naming the file and the error.
std::vector<FileArray> read_arrays(const std::string& path, FileFormat format);
// The whole file as a flat array of this dtype without a header. For .npy files the dtype is the file's own.
FileArray read_token_stream(const std::string& path, const std::string& dtype);

}  // namespace dslaunch::runtime
