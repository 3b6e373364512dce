#include "runtime/model/fusion/services.hpp"

#include <utility>

#include "base/log.hpp"

namespace dslaunch::runtime::model::fusion {

ProgramLog::ProgramLog() : ProgramLog([](const std::string&, const std::string& text) { log::warning("{}", text); }) {}

void ProgramLog::say_once(const std::string& topic, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (!said_.insert(topic).second) return;
  }
  say_(topic, text);
}

void ProgramLog::keep_entries() {
  const std::lock_guard lock(mutex_);
  keeps_entries_ = true;
}

void ProgramLog::add(Entry entry) {
  const std::lock_guard lock(mutex_);
  if (keeps_entries_) entries_.push_back(std::move(entry));
}

std::vector<ProgramLog::Entry> ProgramLog::take_entries() {
  const std::lock_guard lock(mutex_);
  return std::exchange(entries_, {});
}

}  // namespace dslaunch::runtime::model::fusion
