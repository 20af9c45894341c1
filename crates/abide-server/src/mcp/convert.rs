//! Between rmcp's types and ours: the only place that knows both.

use std::time::Duration;

use abide_core::{Progress, RawJson, RpcError, Task};
use abide_engine::Answer;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, CreateTaskResult,
    ErrorCode, InputRequests, InputRequiredResult, ProgressNotificationParam, ProgressToken,
    TaskStatus,
};

/// An engine's answer as rmcp sends it.
pub(crate) fn response(answer: Answer) -> Result<CallToolResponse, ErrorData> {
    match answer {
        Answer::Result(result) => Ok(call_result(&result)?.into()),
        Answer::Task(task) => Ok(CreateTaskResult::new(wire_task(&task)).into()),
        Answer::InputRequired { requests, state } => {
            let requests: InputRequests = requests.to().map_err(|error| {
                tracing::error!(%error, "a tool asked for input in a form that rmcp can't send");
                internal("The tool asked for input in a malformed way.")
            })?;
            let mut result = InputRequiredResult::from_input_requests(requests);
            result.request_state = state;
            Ok(result.into())
        }
    }
}

fn call_result(result: &RawJson) -> Result<CallToolResult, ErrorData> {
    result.to().map_err(|error| {
        tracing::error!(%error, "a tool returned something that is not a CallToolResult");
        internal("The tool returned a malformed result.")
    })
}

/// A task as `CreateTaskResult` has it.
fn wire_task(task: &Task) -> rmcp::model::Task {
    let status = match task.status() {
        abide_core::Status::Working => TaskStatus::Working,
        abide_core::Status::InputRequired => TaskStatus::InputRequired,
        abide_core::Status::Completed => TaskStatus::Completed,
        abide_core::Status::Failed => TaskStatus::Failed,
        abide_core::Status::Cancelled => TaskStatus::Cancelled,
    };
    let mut wire = rmcp::model::Task::new(
        task.id().as_str(),
        status,
        task.created_at().to_string(),
        task.last_updated_at().to_string(),
    )
    .with_poll_interval_ms(task.policy().poll_interval_ms);
    wire.ttl_ms = task.ttl_ms();
    wire.status_message = task.status_message().map(str::to_owned);
    wire
}

/// A result that says, to the model, what was wrong with its call.
pub(crate) fn tool_error(message: String) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(message)]).into()
}

pub(crate) fn rpc_error(error: RpcError) -> ErrorData {
    let data = error.data.and_then(|data| data.to().ok());
    ErrorData::new(ErrorCode(error.code), error.message, data)
}

pub(crate) fn internal(message: &'static str) -> ErrorData {
    ErrorData::internal_error(message, None)
}

pub(crate) fn needs_task() -> ErrorData {
    ErrorData::missing_required_client_capability(
        ClientCapabilities::builder().enable_tasks().build(),
    )
}

/// The largest number that progress may count to, the largest integer that every JSON reader
/// knows. What a tool says beyond it is not passed on.
const LARGEST_PROGRESS: f64 = 9_007_199_254_740_991.0;

/// Numbers the progress of one call: each notification's is higher than the last
/// (progress pattern, "MUST increase").
pub(crate) struct ProgressSender {
    token: ProgressToken,
    last: Option<f64>,
}

impl ProgressSender {
    pub(crate) fn new(token: ProgressToken) -> Self {
        Self { token, last: None }
    }

    /// What the tool said, as a notification.
    pub(crate) fn said(&mut self, progress: Progress) -> ProgressNotificationParam {
        let number = self.next(progress.done);
        let mut params = ProgressNotificationParam::new(self.token.clone(), number);
        params.total = progress.total.filter(|total| total.is_finite());
        params.message = progress.message;
        params
    }

    /// A sign of life, when the tool has said nothing for a while.
    pub(crate) fn alive(&mut self, elapsed: Duration) -> ProgressNotificationParam {
        let number = self.next(None);
        let mut params = ProgressNotificationParam::new(self.token.clone(), number);
        params.message = Some(format!("Still working, {} s so far.", elapsed.as_secs()));
        params
    }

    fn next(&mut self, wanted: Option<f64>) -> f64 {
        // A tool's own scale is kept; between its steps the number only creeps, by at least the
        // smallest step that there is at its size.
        const CREEP: f64 = 1e-6;
        let wanted = wanted.filter(|done| done.abs() <= LARGEST_PROGRESS);
        let number = match (wanted, self.last) {
            (Some(done), None) => done,
            (None, None) => 0.0,
            (wanted, Some(last)) => {
                let least = (last + CREEP).max(last.next_up());
                wanted.map_or(least, |done| done.max(least))
            }
        };
        self.last = Some(number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::NumberOrString;

    #[test]
    fn progress_always_grows() {
        let mut sender = ProgressSender::new(ProgressToken(NumberOrString::Number(1)));
        let mut last = f64::NEG_INFINITY;
        let mut check = |steps: &[Option<f64>], end: std::ops::Range<f64>| {
            for done in steps {
                let sent = sender.said(Progress { done: *done, ..Progress::default() }).progress;
                assert!(sent > last, "{sent} after {last}");
                last = sent;
            }
            assert!(end.contains(&last), "{last}");
        };
        let nan = Some(f64::NAN);
        check(&[Some(0.0), Some(50.0), None, Some(40.0), nan, Some(100.0), None], 100.0..100.1);
        check(&[Some(1e15), None, None, Some(f64::MAX), Some(f64::INFINITY)], 1e15..1e15 + 10.0);
    }
}
