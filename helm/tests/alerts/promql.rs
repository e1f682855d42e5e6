//! What a PromQL expression asks for, by a parser of the language.

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{Expr, LabelModifier, VectorSelector, parse};
use std::collections::BTreeSet;

/// A matcher of a selector: a label, and the words that it may be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) label: String,
    /// The words it names, where it names words.
    pub(crate) words: Vec<String>,
}

/// A metric that is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) name: String,
    pub(crate) matchers: Vec<Asked>,
}

/// Everything that an expression asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) selectors: Vec<Selector>,
    /// Labels by which it groups or joins.
    pub(crate) grouping: BTreeSet<String>,
}

impl Question {
    pub(crate) fn of(expr: &str) -> Result<Self, String> {
        let parsed = parse(expr).map_err(|error| format!("{error}: {expr}"))?;
        let mut question = Self::default();
        question.visit(&parsed);
        match question.selectors.iter().find(|selector| selector.name.is_empty()) {
            Some(nameless) => Err(format!("{nameless:?} has no name: {expr}")),
            None => Ok(question),
        }
    }

    fn visit(&mut self, expr: &Expr) {
        match expr {
            Expr::Aggregate(aggregate) => {
                self.group(aggregate.modifier.as_ref());
                self.visit(&aggregate.expr);
                aggregate.param.iter().for_each(|param| self.visit(param));
            }
            Expr::Binary(binary) => {
                let matching = binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref());
                self.group(matching);
                self.visit(&binary.lhs);
                self.visit(&binary.rhs);
            }
            Expr::Unary(unary) => self.visit(&unary.expr),
            Expr::Paren(paren) => self.visit(&paren.expr),
            Expr::Subquery(subquery) => self.visit(&subquery.expr),
            Expr::Call(call) => call.args.args.iter().for_each(|argument| self.visit(argument)),
            Expr::VectorSelector(selector) => self.select(selector),
            Expr::MatrixSelector(selector) => self.select(&selector.vs),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
        }
    }

    fn group(&mut self, modifier: Option<&LabelModifier>) {
        if let Some(LabelModifier::Include(labels) | LabelModifier::Exclude(labels)) = modifier {
            self.grouping.extend(labels.labels.iter().cloned());
        }
    }

    fn select(&mut self, selector: &VectorSelector) {
        let matchers = selector.matchers.matchers.iter().map(asked).collect();
        self.selectors.push(Selector { name: selector.name.clone().unwrap_or_default(), matchers });
    }
}

/// `a|b` names two words; a pattern of another form names none that could be checked.
fn asked(matcher: &Matcher) -> Asked {
    let words: Vec<String> = matcher.value.split('|').map(str::to_owned).collect();
    let plain = |word: &String| word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let names = match matcher.op {
        MatchOp::Equal | MatchOp::NotEqual => vec![matcher.value.clone()],
        MatchOp::Re(_) | MatchOp::NotRe(_) if words.iter().all(plain) => words,
        MatchOp::Re(_) | MatchOp::NotRe(_) => Vec::new(),
    };
    Asked { label: matcher.name.clone(), words: names }
}

#[test]
fn a_question_is_taken_apart_wherever_its_parts_stand() {
    let question = Question::of(
        r#"-sum by (queue) ((a{state=~"x|y",} unless last_over_time(b[1h] offset 5m)) or increase(c{le=~"1(\\.0)?"}[5m]))
           > on (kind) group_left quantile without (pod) (0.5, max_over_time(rate(d[5m])[1h:1m]))"#,
    )
    .unwrap();
    let names: Vec<&str> = question.selectors.iter().map(|selector| selector.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    assert_eq!(question.grouping.iter().collect::<Vec<_>>(), ["kind", "pod", "queue"]);
    assert_eq!(question.selectors[0].matchers[0].words, ["x", "y"]);
    assert!(question.selectors[2].matchers[0].words.is_empty());
    assert!(Question::of("sum(").is_err());
    assert!(Question::of(r#"{job="x"}"#).is_err());
}
