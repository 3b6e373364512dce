#include "runtime/engine/inference/session.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/hash.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr size_t kMaxTexts = 64;  // that are written at once; the others wait

uint64_t hash_of(const std::vector<int64_t>& ids) {
  return fnv1a({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)});
}

}  // namespace

uint64_t Session::key_of(const Request& request) {
  const uint64_t prompt = mix64(hash_of(request.encoder_ids)) ^ hash_of(request.ids);
  return mix64(prompt) + num_same_[prompt]++;
}

int Session::add(Request request) {
  Active active;
  active.number = next_++;
  active.key = key_of(request);
  report_.num_prompts += 1;
  report_.prompt_tokens += std::ssize(request.encoder_ids.empty() ? request.ids : request.encoder_ids);
  if (request.num_beams > 1) {
    active.beams.emplace(BeamOptions{.num_beams = request.num_beams,
                                     .length_penalty = request.length_penalty,
                                     .early_stopping = request.early_stopping,
                                     .num_tokens = request.num_tokens,
                                     .ends = request.ends});
  }
  active.request = std::move(request);
  active_.push_back(std::move(active));
  return active_.back().number;
}

void Session::begin(Active& active) {
  active.has_begun = true;
  active.begun = std::chrono::steady_clock::now();
  active.texts = {decoder_.open(active.request.encoder_ids)};
  active.pieces = {{active.texts[0], active.request.ids}};
}

std::vector<NewToken> Session::step() {
  const auto started = std::chrono::steady_clock::now();
  std::vector<Decoder::Piece> pieces;
  std::vector<Active*> batch, first;
  for (Active& active : active_) {
    if (!batch.empty() && pieces.size() + static_cast<size_t>(active.request.num_beams) > kMaxTexts) break;
    batch.push_back(&active);
    if (!active.has_begun) {
      begin(active);
      first.push_back(&active);
    }
    pieces.insert(pieces.end(), active.pieces.begin(), active.pieces.end());
  }
  at::Tensor logits = decoder_.append(pieces);
  if (num_classes_ > 0 && num_classes_ < logits.size(1)) logits = logits.narrow(1, 0, num_classes_).contiguous();
  std::vector<NewToken> out;
  int64_t row = 0;
  for (Active* active : batch) {
    const auto count = std::ssize(active->pieces);
    const auto own = logits.narrow(0, row, count);
    row += count;
    const auto added = active->beams ? advance_beams(*active, own) : advance(*active, own[0]);
    out.insert(out.end(), added.begin(), added.end());
  }
  report_.new_tokens += std::ssize(out);
  note_time(first, started);
  for (const NewToken& token : out) {
    if (token.finish != Finish::kNot) stop(token.request);
  }
  return out;
}

void Session::note_time(const std::vector<Active*>& first, std::chrono::steady_clock::time_point started) {
  const auto now = std::chrono::steady_clock::now();
  for (const Active* active : first) report_.first_tokens.emplace_back(now - active->begun);
  if (first.empty()) report_.decode_steps.emplace_back(now - started);
  report_.total += now - started;
}

void Session::force_tokens(const Active& active, int64_t num_written, const at::Tensor& scores) const {
  const auto& request = active.request;
  const bool is_last = num_written + 1 == request.num_tokens;
  const auto forced = num_written == 0 && request.forced_first ? request.forced_first
                      : is_last                                ? request.forced_last
                                                               : std::nullopt;
  if (!forced || *forced < 0 || *forced >= scores.size(-1)) return;
  scores.fill_(-std::numeric_limits<float>::infinity());
  scores.select(-1, *forced).fill_(0);
}

std::vector<NewToken> Session::advance(Active& active, const at::Tensor& logits) {
  const auto& request = active.request;
  const auto position = std::ssize(active.written);
  force_tokens(active, position, logits);
  std::vector<int64_t> history = request.ids;
  history.insert(history.end(), active.written.begin(), active.written.end());
  const int64_t token =
      choose_token(logits, request.sampling, history, uniform_number(request.seed, active.key, position));
  active.written.push_back(token);
  active.pieces = {{active.texts[0], {token}}};
  Finish finish = Finish::kNot;
  if (request.ends.count(token) > 0) {
    finish = Finish::kEnd;
  } else if (position + 1 >= request.num_tokens) {
    finish = Finish::kLength;
  }
  return {{active.number, token, finish}};
}

std::vector<NewToken> Session::advance_beams(Active& active, const at::Tensor& logits) {
  auto& search = *active.beams;
  const auto& request = active.request;
  const at::Tensor log_probs = at::log_softmax(logits, -1);
  for (int64_t i = 0; i < log_probs.size(0); ++i) {
    const auto& written = search.running()[static_cast<size_t>(i)];
    std::vector<int64_t> history = request.ids;
    history.insert(history.end(), written.begin(), written.end());
    penalize_repetition(log_probs[i], history, request.sampling.repetition_penalty);
    force_tokens(active, std::ssize(written), log_probs[i]);
  }
  const auto& next = search.step(log_probs);
  if (search.is_done()) {
    const auto& best = search.finished().front().tokens;
    std::vector<NewToken> out;
    for (const int64_t token : best) out.push_back({active.number, token, Finish::kNot});
    out.back().finish = request.ends.count(best.back()) > 0 ? Finish::kEnd : Finish::kLength;
    return out;
  }
  std::vector<int> texts(next.size(), -1);
  std::set<int> taken;
  for (size_t i = 0; i < next.size(); ++i) {
    const int parent = active.texts[static_cast<size_t>(next[i].parent)];
    texts[i] = taken.insert(parent).second ? parent : decoder_.fork(parent);
  }
  for (const int text : active.texts) {
    if (taken.count(text) == 0) decoder_.close(text);
  }
  active.texts = texts;
  active.pieces.clear();
  for (size_t i = 0; i < next.size(); ++i) active.pieces.push_back({texts[i], {next[i].token}});
  return {};
}

void Session::close(Active& active) {
  for (const int text : active.texts) decoder_.close(text);
}

void Session::stop(int request) {
  const auto found =
      std::find_if(active_.begin(), active_.end(), [&](const Active& active) { return active.number == request; });
  if (found == active_.end()) return;
  close(*found);
  active_.erase(found);
}

}  // namespace dslaunch::runtime::engine::inference
