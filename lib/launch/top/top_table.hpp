// The table of `dslaunch top` from the supervisor's document (docs/jobs.md). Pure.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch::launch {

enum class RowKind { kOrdinary, kHeading, kWaiting, kHeld };
struct TopRow {
  std::string text;
  RowKind kind = RowKind::kOrdinary;
};

struct TopTable {
  std::vector<TopRow> above;  // the job, and the headings
  std::vector<TopRow> ranks;
};

// `name`: of the job, for people. Throws Error(70) for a document of another form.
TopTable top_table(const std::string& document, const std::string& name);

// All rows as lines, each with its newline.
std::string plain_text(const TopTable& table);

struct ScreenShape {
  size_t columns = 80, rows = 24;
  size_t first_rank = 0;  // index of the first row shown
  bool colors = true;
};
// What fits on a screen: rows are cut, those that do not fit are counted in the last line. One line for each row of the
// screen at most, without newlines.
std::vector<std::string> fit_to_screen(const TopTable& table, const ScreenShape& shape);
// How far first_rank may go.
size_t last_first_rank(const TopTable& table, size_t rows);

}  // namespace dslaunch::launch
