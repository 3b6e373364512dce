// One data file as a list of arrays in memory: safetensors, .npy, .npz. Mapped, so opening costs only the header; only
// compressed .npz members are unpacked into memory. Immutable once opened.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace dslaunch::runtime {

struct FileArray {
  std::string name;  // of an .npy file: its file name without folder and ending
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;
  std::shared_ptr<const void> owner;  // keeps data valid
  std::string path;
};

enum class FileFormat { kSafetensors, kNpy, kNpz, kTokens, kMegatron };

// `format` as in the config; "auto": by the file's ending, else by its first bytes, else token stream when
// `has_seq_len`. Throws UserError(65) for an unknown format and 66 for a file that cannot be read.
FileFormat file_format(const std::string& path, const std::string& format, bool has_seq_len);

// In the order of the file. Throws UserError (65, 66) naming the file and what is wrong.
std::vector<FileArray> read_arrays(const std::string& path, FileFormat format);
// A flat array without header of this dtype, all of the file. For .npy files the dtype is the file's own.
FileArray read_token_stream(const std::string& path, const std::string& dtype);

}  // namespace dslaunch::runtime
