#include "runtime/model/decoding/key_cache.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "runtime/model/interface/cached_forward.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

int64_t bytes_of(const at::Tensor& pool) {
  return pool.defined() ? static_cast<int64_t>(pool.nbytes()) : 0;
}

}  // namespace

int KeyCache::open() {
  texts_[next_] = {};
  return next_++;
}

int KeyCache::fork(int text) {
  texts_[next_] = texts_.at(text);
  for (const int64_t page : texts_[next_].pages) users_[static_cast<size_t>(page)] += 1;
  return next_++;
}

int64_t KeyCache::read_bytes() const {
  int64_t tokens = 0;
  for (const auto& [number, text] : texts_) tokens += text.length;
  return tokens * page_bytes() / kPageTokens;
}

void KeyCache::close(int text) {
  for (const int64_t page : texts_.at(text).pages) release(page);
  texts_.erase(text);
}

void KeyCache::release(int64_t page) {
  if (--users_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

int64_t KeyCache::page_bytes() const {
  int64_t sum = 0;
  for (const auto& layer : layers_) {
    for (const auto* pool : {&layer.keys, &layer.values}) {
      if (pool->defined()) sum += bytes_of(*pool) / pool->size(0);
    }
  }
  return sum;
}

int64_t KeyCache::bytes() const {
  int64_t sum = 0;
  for (const auto& layer : layers_) sum += bytes_of(layer.keys) + bytes_of(layer.values);
  return sum;
}

int64_t KeyCache::take_page() {
  if (!free_.empty()) {
    const int64_t page = free_.back();
    free_.pop_back();
    users_[static_cast<size_t>(page)] = 1;
    return page;
  }
  const int64_t needed = page_bytes() * (std::ssize(users_) + 1);
  if (max_bytes_ > 0 && needed > max_bytes_) {
    throw CacheIsFull(
        ExitCode::kBadInput,
        fmt::format("the cache of keys and values needs {} for {} tokens, and may take {}: write fewer or "
                    "shorter texts at once, or allow more (--cache_bytes)",
                    format_bytes(needed), (std::ssize(users_) + 1) * kPageTokens, format_bytes(max_bytes_)));
  }
  users_.push_back(1);
  return std::ssize(users_) - 1;
}

void KeyCache::copy_page(int64_t from, int64_t to) {
  for (auto& layer : layers_) {
    for (at::Tensor* pool : {&layer.keys, &layer.values}) {
      grow(*pool, *pool);
      (*pool)[to].copy_((*pool)[from]);
    }
  }
}

void KeyCache::reserve(int text, int64_t count) {
  Text& own = texts_.at(text);
  const int64_t first = own.length / kPageTokens;
  // The page that is written next, where another text has it too.
  if (first < std::ssize(own.pages) && users_[static_cast<size_t>(own.pages[static_cast<size_t>(first)])] > 1) {
    const int64_t shared = own.pages[static_cast<size_t>(first)];
    const int64_t copy = take_page();
    copy_page(shared, copy);
    release(shared);
    own.pages[static_cast<size_t>(first)] = copy;
    own.index.reset();
  }
  while (std::ssize(own.pages) * kPageTokens < own.length + count) own.pages.push_back(take_page());
}

// To the number of pages, with some to spare.
void KeyCache::grow(at::Tensor& pool, const at::Tensor& like) {
  const auto needed = std::ssize(users_);
  const int64_t have = pool.defined() ? pool.size(0) : 0;
  if (have >= needed) return;
  // A step that was captured is captured again when pages move.
  constexpr int64_t kFirstOnDevice = 16;
  int64_t size = std::max({needed, have + have / 2, like.is_cpu() ? 0 : kFirstOnDevice});
  if (max_bytes_ > 0) size = have == 0 ? needed : std::max(needed, std::min(size, max_bytes_ / page_bytes()));
  at::Tensor larger = at::zeros({size, like.size(-3), kPageTokens, like.size(-1)}, like.options());
  if (have > 0) larger.narrow(0, 0, have).copy_(pool);
  pool = larger;
  layout_ += 1;
}

void KeyCache::place_pages() {
  for (auto& layer : layers_) {
    for (at::Tensor* pool : {&layer.keys, &layer.values}) {
      if (pool->defined()) grow(*pool, *pool);
    }
  }
  peak_bytes_ = std::max(peak_bytes_, bytes());
}

// The pages of a text, on the device of its keys: copied there when they change, not for each layer.
at::Tensor KeyCache::index_of(const Text& text, at::Device device) {
  if (!text.index.defined() || text.index.device() != device || text.index.numel() != std::ssize(text.pages)) {
    text.index = at::tensor(at::ArrayRef<int64_t>(text.pages)).to(device);
  }
  return text.index;
}

void KeyCache::put(size_t layer, int text, const at::Tensor& keys, const at::Tensor& values) {
  if (layers_.size() <= layer) layers_.resize(layer + 1);
  const Text& own = texts_.at(text);
  for (const auto& [pool, added] : {std::pair{&layers_[layer].keys, &keys}, {&layers_[layer].values, &values}}) {
    grow(*pool, *added);
    const int64_t count = added->size(-2);
    for (int64_t done = 0; done < count;) {
      const int64_t at = own.length + done, offset = at % kPageTokens, number = at / kPageTokens;
      const int64_t whole_pages = offset == 0 ? (count - done) / kPageTokens : 0;
      if (whole_pages > 1) {
        // [heads, tokens, width] -> [pages, heads, tokens of a page, width]
        const at::Tensor part = added->narrow(-2, done, whole_pages * kPageTokens);
        const at::Tensor by_page = part.unflatten(-2, {whole_pages, kPageTokens}).transpose(0, 1);
        pool->index_copy_(0, index_of(own, pool->device()).narrow(0, number, whole_pages), by_page);
        done += whole_pages * kPageTokens;
        continue;
      }
      const int64_t part = std::min(count - done, kPageTokens - offset);
      (*pool)[own.pages[static_cast<size_t>(number)]].narrow(-2, offset, part).copy_(added->narrow(-2, done, part));
      done += part;
    }
  }
  peak_bytes_ = std::max(peak_bytes_, bytes());
}

KeyCache::KeysAndValues KeyCache::get(size_t layer, int text, int64_t count) const {
  const Text& own = texts_.at(text);
  const int64_t pages = (count + kPageTokens - 1) / kPageTokens;
  const auto gathered = [&](const at::Tensor& pool) {
    // [pages, heads, tokens of a page, width] -> [heads, tokens, width]
    const at::Tensor taken = pool.index_select(0, index_of(own, pool.device()).narrow(0, 0, pages)).transpose(0, 1);
    return taken.reshape({pool.size(1), pages * kPageTokens, pool.size(3)}).narrow(1, 0, count);
  };
  return {gathered(layers_.at(layer).keys), gathered(layers_.at(layer).values)};
}

}  // namespace dslaunch::runtime::model::decoding
