// The file and the command line, key by key: names looked up, aliases and misplaced keys put right, types and bounds
// checked. What stays open are rules that look at several keys (rules.hpp) and the batch triple (batch_triple.hpp).
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/issue.hpp"
#include "config/key_spec.hpp"
#include "config/value.hpp"

namespace dslaunch::config {

// An option of the command line that sets a key; wins over the file.
struct Override {
  std::string key;    // dotted
  std::string value;  // as HJSON; for texts as it stands
  std::string origin = "command line";
};

struct Setting {
  const KeySpec* spec = nullptr;
  std::vector<std::string> parts;  // the dotted key, taken apart; a name of the user's choice may hold dots
  Value value;                     // of the kind that `spec` says; for sections: null or an object without members
  std::string origin = "default";  // default, file, auto, solved, or an override's origin
  Place place;                     // line 0 unless the file gave it
  int order = 0;                   // in which it was given; 0: not given
  bool deferred = false;           // "auto" that only the worker can solve; `value` is the text auto
  bool is_low_priority = false;    // given under another name or in the wrong section: the right one wins

  bool given() const { return order > 0; }
};

inline constexpr size_t kMaxIssues = 1000;
inline constexpr size_t kMaxNames = 1000;  // of the user's choice, in one section

class Settings {
 public:
  // `source` is the file's name as messages show it.
  explicit Settings(std::string source) : source_(std::move(source)) {}

  void take_document(const Value& root);
  void take_override(const Override& option);
  // Every key of the table that nobody gave gets its default; refuses what is not built yet, and notes what has no
  // effect.
  void complete();

  // Null when there is no such key, or it is a key of a named section that nobody gave.
  const Setting* find(const std::string& path) const;
  // These need complete() and a key of the table of the fitting kind; a value of null reads as 0, false or "".
  const Setting& at(const std::string& path) const;
  bool given(const std::string& path) const;
  bool boolean(const std::string& path) const { return at(path).value.boolean; }
  int64_t integer(const std::string& path) const { return at(path).value.integer; }
  double number(const std::string& path) const { return at(path).value.number; }
  const std::string& text(const std::string& path) const { return at(path).value.text; }
  std::vector<std::string> texts(const std::string& path) const;
  // The name under which a key was given, where that is not its own; its path otherwise.
  std::string written_as(const std::string& path) const;

  // Puts a value that was worked out in place of what is there.
  void solve(const std::string& path, Value value, std::string origin = "solved");
  // An issue at the place of a key that was given, or of its nearest section that was.
  void add_error(Issue::Kind kind, const std::string& path, std::string message);
  bool complained_about(const std::string& path) const;
  void note(const std::string& path, std::string message);
  void note(std::string message) { notes_.push_back(std::move(message)); }

  const std::map<std::string, Setting>& all() const { return settings_; }
  // Nobody reads more than kMaxIssues; of the others only their number is kept.
  const std::vector<Issue>& issues() const { return issues_; }
  size_t num_unlisted_issues() const { return num_unlisted_issues_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::string& source() const { return source_; }

 private:
  // Where the walk stands: the path as given and as the table writes it.
  struct At {
    std::string path, table_path;
    std::vector<std::string> parts;
  };
  struct Given {
    Place place;
    std::string name;  // as it was written, for messages
    bool is_low_priority = false;
  };

  At child(const At& section, const std::string& name) const;
  const KeySpec* spec_at(At& at, const At& section) const;
  void take_members(const At& section, const Value& object);
  void take_member(const At& section, const std::string& name, Place place, const Value& value);
  void take_alias(const At& written, const KeyAlias& alias, Place place, const Value& value);
  void take_misplaced_or_unknown(const At& section, const std::string& name, Place place, const Value& value);
  void unknown_key(const At& section, const std::string& name, Place place);
  bool list_is_full() const { return issues_.size() >= kMaxIssues; }
  void list(Issue issue);
  void assign(const At& at, const KeySpec& spec, const Given& given, const Value& value);
  void assign_section(const At& at, const KeySpec& spec, const Given& given, const Value& value);
  void assign_leaf(const At& at, const KeySpec& spec, const Given& given, const Value& value);
  void put(const At& at, const Given& given, Setting setting);
  void forget_below(const std::string& path);
  void add_issue(Issue::Kind kind, Place place, std::string key, std::string message);
  bool switched_off(const std::string& path) const;
  void reject_unsupported();
  void note_what_has_no_effect();
  void miss_required();

  std::string source_;
  std::string origin_ = "file";  // of what is being taken
  std::string speaker_;          // what messages name as the source now; empty: source_
  int counter_ = 0;              // of given settings
  int first_of_source_ = 0;      // settings with a larger order came from the same source as the one at hand
  std::map<std::string, Setting> settings_;
  std::map<std::string, std::string> written_as_;  // path -> the name under which it was given
  std::vector<Issue> issues_;
  size_t num_unlisted_issues_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace dslaunch::config
