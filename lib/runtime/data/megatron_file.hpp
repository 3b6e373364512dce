// Token data as written by Megatron-LM's preprocess_data.py and DeepSpeed's data pipeline: X.bin holds the tokens,
// X.idx gives their type and the location of each sequence.
//
// X.idx, little-endian: "MMIDIDX\0\0"; uint64 version 1; uint8 code of the type; uint64 number of sequences S; uint64
// length of the document index D; int32 lengths [S] in tokens; int64 offsets [S] in bytes of X.bin; int64 document
// index [D].
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/array_file.hpp"

namespace dslaunch::runtime {

// `path`: X, X.bin or X.idx. Returns whether such a pair exists.
bool is_megatron_data(const std::string& path);
// Returns X for any of the three forms.
std::string megatron_prefix(const std::string& path);

// The sequences in the order of the index, as flat arrays of tokens: one for each contiguous range of X.bin. Throws
// UserError (65, 66) naming the file and the error.
std::vector<FileArray> read_megatron_tokens(const std::string& path);

// The sequences one by one: the rows of an index that DeepSpeed's data analyzer and tools/analyze_data write.
struct IndexRows {
  std::vector<int64_t> values;  // of all rows, one after the other
  std::vector<size_t> ends;     // of each row in `values`

  size_t size() const { return ends.size(); }
  std::span<const int64_t> row(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return {values.data() + begin, ends[i] - begin};
  }
};
// Throws as above.
IndexRows read_index_rows(const std::string& path);

}  // namespace dslaunch::runtime
