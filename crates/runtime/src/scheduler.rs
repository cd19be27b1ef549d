//! Who runs in the next step. Pure: it sees requests, steps and logits, no clock and no process.
//!
//! Continuous batching (Yu et al., *Orca*, 2022) with chunked prefill (Agrawal et al., *Sarathi*, 2023): a step takes
//! one token of every answer that is running, then fills up with pieces of prompts, so that a long prompt never
//! freezes the streams. With a pipeline there are as many steps in flight as stages: several chunks of a prompt, or
//! several groups of answers, keep all stages busy. A sequence's next token is known only when its step has come
//! back, which needs no rule of its own: until then the sequence has no token to run.
//!
//! Every rank runs steps in the order they were made. So a cancelled sequence gives its pages back at once, even with
//! steps in flight: whoever gets the pages writes to them later, on every rank.

use crate::{
    pages::PagePool,
    protocol::{FinishReason, Limits, Request, RequestEvent, RequestId, Want},
};
use pomar_engine::{Chunk, Logits, PAGE, Step, sampler::log_probabilities};
use std::collections::VecDeque;

/// Prompt tokens per step whose logits are all wanted; bounds the leader's memory to this many rows of the vocabulary.
const LOGITS_CHUNK: usize = 64;

/// A request and how far it has come.
struct Sequence {
    request: Request,
    answer: Vec<u32>,
    /// Positions that are computed or in flight.
    scheduled: usize,
    pages: Vec<u32>,
}

impl Sequence {
    fn known(&self) -> usize {
        self.request.prompt.len() + self.answer.len()
    }

    fn pending(&self) -> usize {
        self.known() - self.scheduled
    }

    fn token(&self, position: usize) -> u32 {
        let prompt = &self.request.prompt;
        if position < prompt.len() { prompt[position] } else { self.answer[position - prompt.len()] }
    }

    fn is_decoding(&self) -> bool {
        !self.answer.is_empty()
    }
}

/// A step on its way through the stages, and whose chunks it holds.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) step: Step,
    requests: Vec<RequestId>,
}

/// Something for a request's front.
pub(crate) type Outcome = (RequestId, RequestEvent);

/// The requests of one instance.
pub(crate) struct Scheduler {
    limits: Limits,
    stages: usize,
    vocab: usize,
    waiting: VecDeque<Request>,
    running: Vec<Sequence>,
    pages: PagePool,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, stages: usize, vocab: usize) -> Self {
        let pages = PagePool::new(limits.pages);
        // Every answer gets its token, and at least one prompt token fits beside them.
        let limits = Limits { step_tokens: limits.step_tokens.max(limits.sequences + 1), ..limits };
        Self { limits, stages, vocab, waiting: VecDeque::new(), running: Vec::new(), pages }
    }

    /// Takes a request on, or gives the event that says why not.
    pub(crate) fn submit(&mut self, request: Request) -> Result<(), RequestEvent> {
        self.check(&request).map_err(RequestEvent::Invalid)?;
        let waiting = self.waiting.len();
        if waiting >= self.limits.waiting {
            return Err(RequestEvent::Busy(format!(
                "{waiting} requests are waiting already; try again later"
            )));
        }
        self.waiting.push_back(request);
        Ok(())
    }

    fn check(&self, request: &Request) -> Result<(), String> {
        let Limits { context, pages, .. } = self.limits;
        let (context, prompt, answer) = (context.min(pages * PAGE), request.prompt.len(), request.max_tokens);
        if prompt == 0 {
            return Err("the prompt is empty".into());
        }
        if let Some(id) = request.prompt.iter().find(|&&id| id as usize >= self.vocab) {
            return Err(format!("token id {id} is not below the vocabulary size {}", self.vocab));
        }
        if prompt.saturating_add(answer) > context {
            return Err(format!(
                "{prompt} prompt tokens and {answer} answer tokens are more than the context of {context}: shorten \
                 the prompt, ask for fewer tokens, or start with a larger --context"
            ));
        }
        request.sampling.check().map_err(|error| error.to_string())
    }

    /// Forgets a request and frees what it holds.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.waiting.retain(|request| request.id != id);
        self.release(id);
    }

    /// The next step, if any sequence has tokens to run.
    pub(crate) fn next_step(&mut self) -> Option<Planned> {
        self.admit();
        let mut budget = self.limits.step_tokens;
        let mut planned = Planned { step: Step::default(), requests: Vec::new() };
        // Answers are dealt out over the steps in flight, so that every stage has some of them.
        let decoding = self.running.iter().filter(|sequence| sequence.is_decoding()).count();
        let mut share = decoding.div_ceil(self.stages);
        for sequence in self.running.iter_mut().filter(|s| s.is_decoding() && s.pending() > 0) {
            if budget == 0 || share == 0 {
                break;
            }
            planned.add(sequence, 1);
            budget -= 1;
            share -= 1;
        }
        for sequence in self.running.iter_mut().filter(|s| !s.is_decoding() && s.pending() > 0) {
            if budget == 0 {
                break;
            }
            let limit = if sequence.request.want == Want::Tokens { budget } else { budget.min(LOGITS_CHUNK) };
            let chunk = sequence.request.chunk.unwrap_or(limit).clamp(1, limit).min(sequence.pending());
            planned.add(sequence, chunk);
            budget -= chunk;
        }
        (!planned.requests.is_empty()).then_some(planned)
    }

    /// What follows from a step's logits `[logit rows, vocab]`.
    pub(crate) fn finish_step(&mut self, planned: &Planned, logits: &[f32]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut rows = logits.chunks_exact(self.vocab);
        for (chunk, &id) in planned.step.chunks.iter().zip(&planned.requests) {
            let rows: Vec<&[f32]> = rows.by_ref().take(chunk.logit_rows()).collect();
            let Some(sequence) = self.running.iter_mut().find(|s| s.request.id == id) else {
                continue;
            };
            sequence.report_rows(chunk, &rows, &mut outcomes);
            let end = chunk.start as usize + chunk.tokens.len();
            let ends_known = end == sequence.known();
            let finished = match rows.last() {
                Some(last) if ends_known => sequence.extend(last, end, &mut outcomes),
                _ if ends_known => Some(FinishReason::Length),
                _ => None,
            };
            if let Some(reason) = finished {
                outcomes.push((id, RequestEvent::Finished(reason)));
                self.release(id);
            }
        }
        outcomes
    }

    /// True when no request is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Gives waiting requests a place, first come first served, each with all the pages it can ever need: a request
    /// that has started is never put back.
    fn admit(&mut self) {
        while self.running.len() < self.limits.sequences {
            let Some(request) = self.waiting.front() else {
                return;
            };
            let needed = (request.prompt.len() + request.max_tokens).div_ceil(PAGE);
            let Some(pages) = self.pages.take(needed) else {
                return;
            };
            let Some(request) = self.waiting.pop_front() else {
                return;
            };
            self.running.push(Sequence { request, answer: Vec::new(), scheduled: 0, pages });
        }
    }

    fn release(&mut self, id: RequestId) {
        if let Some(at) = self.running.iter().position(|s| s.request.id == id) {
            self.pages.give_back(self.running.remove(at).pages);
        }
    }
}

impl Planned {
    fn add(&mut self, sequence: &mut Sequence, tokens: usize) {
        let start = sequence.scheduled;
        let end = start + tokens;
        let logits = match sequence.request.want {
            Want::Logits => Logits::All,
            Want::PromptLogProbs if !sequence.is_decoding() => Logits::All,
            _ if end == sequence.known() => Logits::Last,
            _ => Logits::None,
        };
        self.requests.push(sequence.request.id);
        self.step.chunks.push(Chunk {
            tokens: (start..end).map(|position| sequence.token(position)).collect(),
            start: start as u32,
            pages: sequence.pages[..end.div_ceil(PAGE)].to_vec(),
            logits,
        });
        sequence.scheduled = end;
    }
}

impl Sequence {
    /// Sends what was asked for besides tokens.
    fn report_rows(&self, chunk: &Chunk, rows: &[&[f32]], outcomes: &mut Vec<Outcome>) {
        let start = chunk.start as usize;
        match self.request.want {
            Want::Tokens => {}
            Want::Logits => {
                outcomes
                    .push((self.request.id, RequestEvent::Logits { position: start, logits: rows.concat() }));
            }
            Want::PromptLogProbs => {
                let next = self.request.prompt.iter().skip(start + 1);
                let values: Vec<f32> = rows
                    .iter()
                    .zip(next)
                    .map(|(row, &token)| log_probabilities(row, token, 0).chosen)
                    .collect();
                if !values.is_empty() {
                    outcomes.push((
                        self.request.id,
                        RequestEvent::PromptLogProbs { position: start + 1, values },
                    ));
                }
            }
        }
    }

    /// Chooses the token at `position` from its logits. Gives the reason when it is the end of the answer.
    fn extend(
        &mut self,
        logits: &[f32],
        position: usize,
        outcomes: &mut Vec<Outcome>,
    ) -> Option<FinishReason> {
        let request = &self.request;
        if request.max_tokens == 0 {
            return Some(FinishReason::Length);
        }
        let token = request.sampling.choose(logits, &request.prompt, &self.answer, position);
        if request.stop_tokens.contains(&token) {
            return Some(FinishReason::Stop);
        }
        let logprobs = request.logprobs.map(|top| log_probabilities(logits, token, top));
        outcomes.push((request.id, RequestEvent::Token { token, logprobs }));
        self.answer.push(token);
        (self.answer.len() == request.max_tokens).then_some(FinishReason::Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pomar_engine::Sampling;

    const VOCAB: usize = 16;
    const LIMITS: Limits = Limits { context: 256, pages: 16, step_tokens: 32, sequences: 3, waiting: 4 };

    fn request(id: RequestId, prompt: usize, max_tokens: usize) -> Request {
        Request {
            id,
            prompt: (0..prompt).map(|i| (i % VOCAB) as u32).collect(),
            max_tokens,
            stop_tokens: vec![15],
            sampling: Sampling::default(),
            logprobs: None,
            want: Want::Tokens,
            chunk: None,
        }
    }

    /// Logits that choose `token` in every row.
    fn logits(planned: &Planned, token: usize) -> Vec<f32> {
        let mut row = [0.0; VOCAB];
        row[token] = 1.0;
        row.repeat(planned.step.logit_rows())
    }

    fn tokens(planned: &Planned) -> Vec<usize> {
        planned.step.chunks.iter().map(|chunk| chunk.tokens.len()).collect()
    }

    #[test]
    fn a_prompt_runs_in_chunks_and_the_answer_token_by_token() {
        let mut scheduler = Scheduler::new(LIMITS, 1, VOCAB);
        scheduler.submit(request(1, 70, 2)).unwrap();
        for (expected, rows) in [(32, 0), (32, 0), (6, 1)] {
            let planned = scheduler.next_step().unwrap();
            assert_eq!((tokens(&planned), planned.step.logit_rows()), (vec![expected], rows));
            let outcomes = scheduler.finish_step(&planned, &logits(&planned, 5));
            assert_eq!(outcomes.len(), rows);
        }
        let planned = scheduler.next_step().unwrap();
        assert_eq!(planned.step.chunks[0].tokens, [5]);
        assert_eq!(planned.step.chunks[0].start, 70);
        let outcomes = scheduler.finish_step(&planned, &logits(&planned, 6));
        assert_eq!(outcomes[0], (1, RequestEvent::Token { token: 6, logprobs: None }));
        assert_eq!(outcomes[1], (1, RequestEvent::Finished(FinishReason::Length)));
        assert!(scheduler.is_idle());
    }

    #[test]
    fn a_stop_token_ends_the_answer_and_is_not_part_of_it() {
        let mut scheduler = Scheduler::new(LIMITS, 1, VOCAB);
        scheduler.submit(request(1, 4, 9)).unwrap();
        let planned = scheduler.next_step().unwrap();
        let outcomes = scheduler.finish_step(&planned, &logits(&planned, 15));
        assert_eq!(outcomes, [(1, RequestEvent::Finished(FinishReason::Stop))]);
    }

    #[test]
    fn a_long_prompt_does_not_freeze_an_answer() {
        let mut scheduler = Scheduler::new(LIMITS, 1, VOCAB);
        scheduler.submit(request(1, 3, 20)).unwrap();
        let planned = scheduler.next_step().unwrap();
        scheduler.finish_step(&planned, &logits(&planned, 5));
        scheduler.submit(request(2, 200, 1)).unwrap();
        for _ in 0..6 {
            let planned = scheduler.next_step().unwrap();
            let mut sizes = tokens(&planned);
            sizes.sort_unstable();
            assert_eq!(sizes, [1, 31]);
            scheduler.finish_step(&planned, &logits(&planned, 5));
        }
    }

    #[test]
    fn a_pipeline_gets_several_chunks_of_one_prompt_and_shares_of_many_answers() {
        let mut scheduler = Scheduler::new(LIMITS, 2, VOCAB);
        scheduler.submit(request(1, 64, 9)).unwrap();
        let (first, second) = (scheduler.next_step().unwrap(), scheduler.next_step().unwrap());
        assert_eq!((first.step.chunks[0].start, second.step.chunks[0].start), (0, 32));
        assert!(scheduler.next_step().is_none());
        scheduler.finish_step(&first, &[]);
        scheduler.finish_step(&second, &logits(&second, 5));

        scheduler.submit(request(2, 2, 9)).unwrap();
        let both = scheduler.next_step().unwrap();
        assert_eq!(both.step.chunks.len(), 2);
        scheduler.finish_step(&both, &logits(&both, 5));
        let (first, second) = (scheduler.next_step().unwrap(), scheduler.next_step().unwrap());
        assert_eq!((first.step.chunks.len(), second.step.chunks.len()), (1, 1));
        assert_ne!(first.requests, second.requests);
    }

    #[test]
    fn cancelling_frees_the_place_at_once() {
        let mut scheduler = Scheduler::new(Limits { sequences: 1, ..LIMITS }, 2, VOCAB);
        scheduler.submit(request(1, 40, 200)).unwrap();
        scheduler.submit(request(2, 40, 200)).unwrap();
        let flying = scheduler.next_step().unwrap();
        assert_eq!(flying.requests, [1]);
        scheduler.cancel(1);
        let next = scheduler.next_step().unwrap();
        assert_eq!(next.requests, [2]);
        assert!(scheduler.finish_step(&flying, &[]).is_empty());
        scheduler.cancel(2);
        assert!(scheduler.is_idle());
        assert_eq!(scheduler.pages.take(LIMITS.pages).map(|pages| pages.len()), Some(LIMITS.pages));
    }

    #[test]
    fn answers_never_crowd_out_a_prompt() {
        let mut scheduler = Scheduler::new(Limits { step_tokens: 1, ..LIMITS }, 1, VOCAB);
        (1..=3).for_each(|id| scheduler.submit(request(id, 1, 9)).unwrap());
        let mut ran = [0; 4];
        for _ in 0..8 {
            let planned = scheduler.next_step().unwrap();
            planned.requests.iter().for_each(|&id| ran[id as usize] += 1);
            scheduler.finish_step(&planned, &logits(&planned, 5));
        }
        assert_eq!(ran, [0, 8, 8, 8]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_numbers() {
        let mut scheduler = Scheduler::new(LIMITS, 1, VOCAB);
        let invalid = |scheduler: &mut Scheduler, request| match scheduler.submit(request) {
            Err(RequestEvent::Invalid(reason)) => reason,
            other => panic!("{other:?}"),
        };
        let error = invalid(&mut scheduler, request(1, 200, 100));
        assert!(
            error.contains("200 prompt tokens and 100 answer tokens") && error.contains("256"),
            "{error}"
        );
        assert!(invalid(&mut scheduler, request(1, 0, 1)).contains("empty"));
        let foreign = Request { prompt: vec![16], ..request(1, 1, 1) };
        assert!(invalid(&mut scheduler, foreign).contains("token id 16"));
        (1..=4).for_each(|id| scheduler.submit(request(id, 1, 1)).unwrap());
        let busy = scheduler.submit(request(5, 1, 1));
        assert!(matches!(busy, Err(RequestEvent::Busy(reason)) if reason.contains("4 requests are waiting")));
    }

    #[test]
    fn prompt_scores_leave_out_the_first_token() {
        let mut scheduler = Scheduler::new(LIMITS, 1, VOCAB);
        scheduler.submit(Request { want: Want::PromptLogProbs, ..request(1, 5, 0) }).unwrap();
        let planned = scheduler.next_step().unwrap();
        assert_eq!(planned.step.logit_rows(), 5);
        let outcomes = scheduler.finish_step(&planned, &logits(&planned, 2));
        let (1, RequestEvent::PromptLogProbs { position: 1, values }) = &outcomes[0] else {
            panic!("{outcomes:?}")
        };
        // Token 2 is likelier than the others by e.
        let rest = (std::f32::consts::E + 15.0).ln();
        let expected = [-rest, 1.0 - rest, -rest, -rest];
        assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{values:?}");
        assert_eq!(outcomes[1], (1, RequestEvent::Finished(FinishReason::Length)));
    }
}
