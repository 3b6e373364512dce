// The keys and values of texts in pages, which texts that begin with the same tokens share. On the thread that runs the
// model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

namespace dslaunch::runtime::model::decoding {

class KeyCache {
 public:
  static constexpr int64_t kPageTokens = 64;

  // `max_bytes`: 0: no limit.
  explicit KeyCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  int open();
  int fork(int text);
  void close(int text);
  int64_t length(int text) const { return texts_.at(text).length; }

  // Makes room for `count` tokens behind a text's, in pages that no other text has. Throws UserError(65), with both
  // numbers, when the cache would have more bytes than are allowed.
  void reserve(int text, int64_t count);
  // After all layers have put them.
  void advance(int text, int64_t count) { texts_.at(text).length += count; }

  // Of one layer, in reserved room: keys and values [heads, tokens, width] from the text's length on.
  void put(size_t layer, int text, const at::Tensor& keys, const at::Tensor& values);
  struct KeysAndValues {
    at::Tensor keys, values;  // [heads, count, width]
  };
  KeysAndValues get(size_t layer, int text, int64_t count) const;

  // Of all reserved pages of one layer: [pages, heads, kPageTokens, width]. After a token has been put.
  struct Pages {
    at::Tensor keys, values;
  };
  Pages pages(size_t layer) const { return {layers_.at(layer).keys, layers_.at(layer).values}; }
  // Makes the pages of all layers that have been put lie where they will lie for what is reserved.
  void place_pages();
  // Changes when pages move.
  int64_t layout() const { return layout_; }
  const std::vector<int64_t>& pages_of(int text) const { return texts_.at(text).pages; }

  int64_t bytes() const;
  // Of the tokens of all texts; of those that texts share, once for each text.
  int64_t read_bytes() const;
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Text {
    std::vector<int64_t> pages;
    int64_t length = 0;
    mutable at::Tensor index;  // what index_of() has made of the pages
  };
  struct Layer {
    at::Tensor keys, values;  // [pages, heads, kPageTokens, width]
  };
  int64_t take_page();
  void release(int64_t page);
  void copy_page(int64_t from, int64_t to);
  void grow(at::Tensor& pool, const at::Tensor& like);
  int64_t page_bytes() const;
  static at::Tensor index_of(const Text& text, at::Device device);

  const int64_t max_bytes_;
  std::map<int, Text> texts_;
  int next_ = 0;
  std::vector<int> users_;     // of each page: texts
  std::vector<int64_t> free_;  // pages
  std::vector<Layer> layers_;
  int64_t peak_bytes_ = 0, layout_ = 0;
};

}  // namespace dslaunch::runtime::model::decoding
