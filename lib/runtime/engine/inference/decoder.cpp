#include "runtime/engine/inference/decoder.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace dslaunch::runtime::engine::inference {
namespace {

at::Tensor rows_of(const std::vector<std::vector<int64_t>>& rows) {
  at::Tensor out = at::empty({std::ssize(rows), std::ssize(rows.front())}, at::kLong);
  auto* at = out.mutable_data_ptr<int64_t>();
  for (const auto& row : rows) at = std::copy(row.begin(), row.end(), at);
  return out;
}

}  // namespace

int RecomputingDecoder::open(const std::vector<int64_t>& encoder_ids) {
  texts_[next_] = {encoder_ids, {}, 0};
  return next_++;
}

int RecomputingDecoder::fork(int text) {
  texts_[next_] = texts_.at(text);
  return next_++;
}

int RecomputingDecoder::open_read(const std::vector<int64_t>& encoder_ids, const std::vector<int64_t>& ids) {
  texts_[next_] = {encoder_ids, ids, 1};
  return next_++;
}

int64_t RecomputingDecoder::visible(const Text& text) const {
  const auto length = std::ssize(text.ids);
  if (context_ > 0) return std::min(length, context_);
  return text.num_pieces > 1 ? std::min(length, model_.max_tokens().value_or(length)) : length;
}

// `texts`: as long as each other, with encoders' texts as long as each other.
at::Tensor RecomputingDecoder::last_logits(const std::vector<const Text*>& texts) {
  const int64_t length = visible(*texts.front());
  std::vector<std::vector<int64_t>> ids, encoder_ids;
  for (const Text* text : texts) {
    ids.emplace_back(text->ids.end() - length, text->ids.end());
    encoder_ids.push_back(text->encoder_ids);
  }
  try {
    const at::Tensor logits = model_.logits(rows_of(ids), model_.has_encoder() ? rows_of(encoder_ids) : at::Tensor());
    return logits.select(1, -1).to(at::kCPU, at::kFloat);
  } catch (const TooManyTokens&) {
    // The text has grown beyond what the model takes: from now on it sees the end of it.
    if (visible(*texts.front()) == length) throw;
  }
  return last_logits(texts);
}

at::Tensor RecomputingDecoder::append(const std::vector<Piece>& pieces) {
  using Lengths = std::pair<size_t, size_t>;
  std::map<Lengths, std::vector<size_t>> groups;  // of pieces
  for (size_t i = 0; i < pieces.size(); ++i) {
    Text& text = texts_.at(pieces[i].text);
    text.ids.insert(text.ids.end(), pieces[i].ids.begin(), pieces[i].ids.end());
    text.num_pieces += 1;
    groups[{static_cast<size_t>(visible(text)), text.encoder_ids.size()}].push_back(i);
  }
  std::vector<at::Tensor> rows(pieces.size());
  for (const auto& [lengths, members] : groups) {
    std::vector<const Text*> texts;
    for (const size_t piece : members) texts.push_back(&texts_.at(pieces[piece].text));
    const at::Tensor logits = last_logits(texts);
    for (size_t i = 0; i < members.size(); ++i) rows[members[i]] = logits[static_cast<int64_t>(i)];
  }
  return at::stack(rows);
}

CachedDecoder::CachedDecoder(TokenModel& model, std::unique_ptr<model::CachedForward> cache)
    : model_(model), cache_(std::move(cache)), recomputing_(model, /*context=*/0) {}

int CachedDecoder::open(const std::vector<int64_t>& encoder_ids) {
  Text text{encoder_ids, {}, -1, -1};
  text.cached = cache_->open(encoder_ids.empty() ? at::Tensor() : at::tensor(encoder_ids).unsqueeze(0));
  texts_[next_] = std::move(text);
  return next_++;
}

int CachedDecoder::fork(int text) {
  Text copy = texts_.at(text);
  if (copy.cached >= 0) copy.cached = cache_->fork(copy.cached);
  if (copy.recomputed >= 0) copy.recomputed = recomputing_.fork(copy.recomputed);
  texts_[next_] = std::move(copy);
  return next_++;
}

void CachedDecoder::close(int text) {
  const Text& own = texts_.at(text);
  if (own.cached >= 0) cache_->close(own.cached);
  if (own.recomputed >= 0) recomputing_.close(own.recomputed);
  texts_.erase(text);
}

void CachedDecoder::move_to_recomputing(Text& text) {
  cache_->close(std::exchange(text.cached, -1));
  text.recomputed =
      text.ids.empty() ? recomputing_.open(text.encoder_ids) : recomputing_.open_read(text.encoder_ids, text.ids);
}

std::optional<Decoder::SteppedText> CachedDecoder::stepped(int text) const {
  constexpr int64_t kAhead = 2;  // steps in flight
  const Text& own = texts_.at(text);
  const auto length = std::ssize(own.ids);
  if (own.cached < 0 || length + kAhead > model_.max_tokens().value_or(length + kAhead)) return std::nullopt;
  return SteppedText{own.cached, length};
}

at::Tensor CachedDecoder::append_cached(const std::vector<Piece>& pieces) {
  std::vector<Piece> own;
  for (const Piece& piece : pieces) own.push_back({texts_.at(piece.text).cached, piece.ids});
  return cache_->append(own).to(at::kCPU, at::kFloat);
}

// Whether the model does not take as many tokens as the longest text would have.
bool CachedDecoder::finds_limit(const std::vector<Piece>& pieces) {
  std::vector<int64_t> longest;
  const Text* of = nullptr;
  for (const Piece& piece : pieces) {
    const Text& text = texts_.at(piece.text);
    if (text.cached < 0 || text.ids.size() + piece.ids.size() <= longest.size()) continue;
    of = &text;
    longest = text.ids;
    longest.insert(longest.end(), piece.ids.begin(), piece.ids.end());
  }
  if (of == nullptr) return false;
  try {
    model_.logits(rows_of({longest}), model_.has_encoder() ? rows_of({of->encoder_ids}) : at::Tensor());
    return false;
  } catch (const TooManyTokens&) {
    return true;
  }
}

at::Tensor CachedDecoder::append(const std::vector<Piece>& pieces) {
  try {
    return append_once(pieces);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    if (!finds_limit(pieces)) throw;
  }
  return append_once(pieces);
}

at::Tensor CachedDecoder::append_once(const std::vector<Piece>& pieces) {
  const auto most = model_.max_tokens();
  std::vector<Piece> cached, recomputed;
  std::vector<size_t> cached_rows, recomputed_rows;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Text& text = texts_.at(pieces[i].text);
    const auto length = std::ssize(text.ids) + std::ssize(pieces[i].ids);
    if (text.cached >= 0 && most && length > *most) move_to_recomputing(text);
    const bool is_cached = text.cached >= 0;
    (is_cached ? cached : recomputed).push_back({is_cached ? pieces[i].text : text.recomputed, pieces[i].ids});
    (is_cached ? cached_rows : recomputed_rows).push_back(i);
  }
  std::vector<at::Tensor> rows(pieces.size());
  const auto take = [&rows](const at::Tensor& logits, const std::vector<size_t>& numbers) {
    for (size_t i = 0; i < numbers.size(); ++i) rows[numbers[i]] = logits[static_cast<int64_t>(i)];
  };
  if (!cached.empty()) take(append_cached(cached), cached_rows);
  if (!recomputed.empty()) take(recomputing_.append(recomputed), recomputed_rows);
  for (const Piece& piece : pieces) {
    auto& ids = texts_.at(piece.text).ids;
    ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
  }
  return at::stack(rows);
}

}  // namespace dslaunch::runtime::engine::inference
