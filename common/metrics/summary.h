// A run's history for people: the progress line, the table at the end, the plot. Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/metrics/run_logger.h"

namespace manta::metrics {

// "step 12/60  loss 0.1234  reward 0.450  accuracy 0.71  1.9 s/step  1:31 left". Parts that are not known are left out;
// `seconds_left` below 0 is not known.
std::string ProgressLine(int64_t step, int64_t num_steps, double seconds_left, const std::map<std::string, double>& values);

// "45 s", "1:31", "2:05:10", "3 days 4 h".
std::string FormatDuration(double seconds);

// At most `max_rows` steps, evenly chosen with the first and the last, in columns: step, reward, loss, validation, time.
std::string HistoryTable(const std::vector<StepRecord>& history, int max_rows = 12);

// Panels of reward with validation accuracy, and of loss with validation loss, over steps.
std::string PlotHistory(std::string_view title, const std::vector<StepRecord>& history);

}  // namespace manta::metrics
