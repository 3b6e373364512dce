#include "runtime/engine/inference/session.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "base/hash.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

constexpr size_t kMaxPassTokens = 8192;  // of prompts that are read in one pass, unless one alone is longer

uint64_t hash_of(const std::vector<int64_t>& ids) {
  return fnv1a({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)});
}

}  // namespace

// All tokens that a text has.
std::vector<int64_t> Session::text_of(const Active& active) {
  std::vector<int64_t> ids = active.request.ids;
  ids.insert(ids.end(), active.written.begin(), active.written.end());
  return ids;
}

Session::Session(Decoder& decoder, int64_t num_classes, at::Device device)
    : decoder_(decoder), num_classes_(num_classes) {
  if (auto* forward = decoder.steps()) steps_ = std::make_unique<StepBatch>(*forward, device, num_classes);
}

uint64_t Session::key_of(const Request& request) {
  const uint64_t prompt = mix64(hash_of(request.encoder_ids)) ^ hash_of(request.ids);
  return mix64(prompt) + (request.repetition ? *request.repetition : num_same_[prompt]++);
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
  if (active.written.empty()) active.begun = std::chrono::steady_clock::now();
  active.texts = {decoder_.open(active.request.encoder_ids)};
  active.pieces = {{active.texts[0], text_of(active)}};
}

std::vector<NewToken> Session::step() {
  const auto started = std::chrono::steady_clock::now();
  std::vector<const Active*> first;
  for (const Active& active : active_) {
    if (!active.has_begun && active.written.empty()) first.push_back(&active);
  }
  std::vector<NewToken> out = step_or_defer();
  report_.new_tokens += std::ssize(out);
  std::erase_if(first, [](const Active* active) { return !active->has_begun; });
  note_time(first, started);
  for (const NewToken& token : out) {
    if (token.finish != Finish::kNot) stop(token.request);
  }
  return out;
}

std::vector<NewToken> Session::step_or_defer() {
  while (true) {
    try {
      const bool is_stepped = steps_ && (steps_->in_flight() > 0 || can_step());
      return is_stepped ? step_on_device() : append();
    } catch (const model::CacheIsFull&) {
      if (!defer_newest()) throw;
    }
  }
}

// The newest of several texts waits for the end of another.
bool Session::defer_newest() {
  const auto newest =
      std::find_if(active_.rbegin(), active_.rend(), [](const Active& active) { return active.has_begun; });
  if (newest == active_.rend() || newest->beams || &*newest == &active_.front()) return false;
  close(*newest);
  newest->has_begun = false;
  newest->texts.clear();
  stepped_.clear();
  deferred_.splice(deferred_.begin(), active_, std::prev(newest.base()), active_.end());
  return true;
}

// A pass whose logits come to the host; begins requests.
std::vector<NewToken> Session::append() {
  stepped_.clear();
  std::vector<Decoder::Piece> pieces;
  std::vector<Active*> batch;
  size_t prompt_tokens = 0, texts = 0;
  const bool prompts_alone = reads_prompts_alone();
  for (Active& active : active_) {
    if (texts > 0 && texts + static_cast<size_t>(active.request.num_beams) > kMaxTexts) break;
    texts += static_cast<size_t>(active.request.num_beams);
    if (!active.has_begun) {
      const size_t own_tokens = active.request.ids.size() + active.written.size();
      if (prompt_tokens > 0 && prompt_tokens + own_tokens > kMaxPassTokens) break;
      prompt_tokens += own_tokens;
      begin(active);
    } else if (prompts_alone) {
      continue;
    }
    batch.push_back(&active);
    pieces.insert(pieces.end(), active.pieces.begin(), active.pieces.end());
  }
  const at::Tensor all_classes = decoder_.append(pieces);
  at::Tensor logits = all_classes;
  if (num_classes_ > 0 && num_classes_ < logits.size(1)) logits = logits.narrow(1, 0, num_classes_).contiguous();
  std::vector<NewToken> out;
  int64_t row = 0;
  for (Active* active : batch) {
    const auto count = std::ssize(active->pieces);
    const auto own = logits.narrow(0, row, count);
    const auto added =
        active->beams ? advance_beams(*active, own) : advance(*active, own[0], all_classes.narrow(0, row, count));
    row += count;
    out.insert(out.end(), added.begin(), added.end());
  }
  return out;
}

// Whether steps write this text, whose prompt has been read.
bool Session::is_stepped(const Active& active) const {
  const auto& request = active.request;
  if (active.beams || request.forced_first || request.forced_last || request.num_top) return false;
  return decoder_.stepped(active.texts[0]).has_value();
}

// Whether all texts that are written now are ones that steps write.
bool Session::can_step() const {
  size_t count = 0;
  for (const Active& active : active_) {
    if (count++ == kMaxTexts) break;
    if (!active.has_begun || !is_stepped(active)) return false;
  }
  return count > 0;
}

// Whether the next pass is one of prompts only: steps write the other texts, in less time than passes do.
bool Session::reads_prompts_alone() const {
  if (steps_ == nullptr) return false;
  bool has_prompts = false;
  size_t count = 0;
  for (const Active& active : active_) {
    if (count++ == kMaxTexts) break;
    if (active.has_begun && !is_stepped(active)) return false;
    has_prompts = has_prompts || !active.has_begun;
  }
  return has_prompts;
}

std::vector<StepBatch::Row> Session::rows_of_batch() {
  std::vector<StepBatch::Row> rows;
  stepped_.clear();
  for (const Active& active : active_) {
    if (rows.size() == kMaxTexts) break;
    const auto [text, length] = *decoder_.stepped(active.texts[0]);
    rows.push_back({text, length, text_of(active), active.request.sampling});
    stepped_.push_back(active.number);
  }
  return rows;
}

// A step of the token that is `num_ahead` behind the newest known one.
void Session::enqueue(size_t num_ahead) {
  std::vector<double> uniform;
  for (const int request : stepped_) {
    const Active& active = *find(request);
    const auto position = std::ssize(active.written) + static_cast<int64_t>(num_ahead);
    uniform.push_back(uniform_number(active.request.seed, active.key, position));
  }
  steps_->enqueue(uniform);
}

// Whether the texts of the step in flight are those of the next one, as far as is known.
bool Session::may_go_on() {
  if (stepped_.size() != std::min(active_.size(), kMaxTexts) || !can_step()) return false;
  return std::all_of(stepped_.begin(), stepped_.end(), [this](int request) {
    const Active* active = find(request);
    return active != nullptr && std::ssize(active->written) + 1 < active->request.num_tokens;
  });
}

// Whether the newest tokens of all texts that are written now, and of no others, are where the last step left them.
bool Session::steps_hold_batch() {
  std::vector<int> batch;
  for (const Active& active : active_) {
    if (batch.size() < kMaxTexts) batch.push_back(active.number);
  }
  return stepped_ == batch;
}

std::vector<NewToken> Session::step_on_device() {
  has_stepped_ = true;
  if (steps_->in_flight() == 0) {
    if (!steps_hold_batch()) steps_->begin(rows_of_batch());
    try {
      enqueue(0);
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {  // more positions than the model has
      steps_.reset();
      return append();
    }
  }
  if (may_go_on()) {
    try {
      enqueue(1);
    } catch (const std::exception&) {  // is met again, when no step is in flight
    }
  }
  const auto tokens = steps_->take();
  std::vector<NewToken> out;
  for (size_t i = 0; i < stepped_.size(); ++i) {
    Active* active = find(stepped_[i]);
    if (active == nullptr) continue;  // it ended with the token before
    decoder_.note_read(active->texts[0], active->pieces[0].ids[0]);
    const auto added = accept(*active, tokens[i]);
    out.insert(out.end(), added.begin(), added.end());
  }
  return out;
}

void Session::note_time(const std::vector<const Active*>& first, std::chrono::steady_clock::time_point started) {
  const auto now = std::chrono::steady_clock::now();
  for (const Active* active : first) report_.first_tokens.emplace_back(now - active->begun);
  if (first.empty()) {
    report_.decode_steps.emplace_back(now - started);
    report_.read_bytes += decoder_.step_bytes();
  }
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

// `all_classes`: the logits with those that are not chosen, [1, classes].
std::vector<NewToken> Session::advance(Active& active, const at::Tensor& logits, const at::Tensor& all_classes) {
  const auto& request = active.request;
  const auto position = std::ssize(active.written);
  const at::Tensor scored = request.num_top ? all_classes.clone() : at::Tensor();
  force_tokens(active, position, logits);
  const int64_t token =
      choose_token(logits, request.sampling, text_of(active), uniform_number(request.seed, active.key, position));
  auto out = accept(active, token);
  if (request.num_top) out[0].score = score_rows(scored, {token}, *request.num_top)[0];
  return out;
}

// The next token of a text without beams.
std::vector<NewToken> Session::accept(Active& active, int64_t token) {
  const auto& request = active.request;
  const auto position = std::ssize(active.written);
  active.written.push_back(token);
  active.pieces = {{active.texts[0], {token}}};
  Finish finish = Finish::kNot;
  if (request.ends.count(token) > 0) {
    finish = Finish::kEnd;
  } else if (position + 1 >= request.num_tokens) {
    finish = Finish::kLength;
  }
  return {{active.number, token, finish, std::nullopt}};
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
    for (const int64_t token : best) out.push_back({active.number, token, Finish::kNot, std::nullopt});
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

Session::Active* Session::find(int request) {
  const auto found =
      std::find_if(active_.begin(), active_.end(), [&](const Active& active) { return active.number == request; });
  return found == active_.end() ? nullptr : &*found;
}

void Session::stop(int request) {
  const auto is_it = [&](const Active& active) { return active.number == request; };
  std::erase_if(deferred_, is_it);
  const auto found = std::find_if(active_.begin(), active_.end(), is_it);
  if (found == active_.end()) return;
  close(*found);
  active_.erase(found);
  active_.splice(active_.end(), deferred_);
}

}  // namespace dslaunch::runtime::engine::inference
