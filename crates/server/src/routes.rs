//! The one table of routes. The router, the guard, the body limits and the
//! OpenAPI document are all made from it, so none can forget a route.

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::{Next, from_fn};
use axum::routing::{MethodFilter, on};
use http::{Method, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::auth::{Access, Reach, guard};
use crate::body::BodyLimit;
use crate::config::Limits;
use crate::failure::Failure;
use crate::idempotency;
use crate::state::State;

/// How large a request body a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// As most calls.
    Usual,
    /// Conversations, outputs, logs.
    Large,
    /// An inline artifact.
    Artifact,
    /// Streamed to its place; the handler bounds it.
    Streamed,
}

impl BodySize {
    pub(crate) fn limit(self, limits: &Limits) -> u64 {
        match self {
            Self::Usual => limits.body,
            Self::Large => limits.large_body,
            Self::Artifact => limits.artifact_body,
            Self::Streamed => u64::MAX,
        }
    }
}

pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// An answer of a route.
#[derive(Clone)]
pub(crate) struct Documented {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) schema: Option<SchemaOf>,
}

/// A query parameter or header of a route.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) header: bool,
    pub(crate) description: &'static str,
}

/// One route.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) size: BodySize,
    pub(crate) summary: &'static str,
    pub(crate) body: Option<SchemaOf>,
    pub(crate) answers: Vec<Documented>,
    pub(crate) parameters: Vec<Parameter>,
    /// True when the engine behind the route does not exist yet.
    pub(crate) later: bool,
}

impl Route {
    fn new(method: Method, path: &'static str, access: Access, summary: &'static str) -> Self {
        Self {
            method,
            path,
            access,
            size: BodySize::Usual,
            summary,
            body: None,
            answers: Vec::new(),
            parameters: Vec::new(),
            later: false,
        }
    }

    pub(crate) fn open(method: Method, path: &'static str, summary: &'static str) -> Self {
        Self::new(method, path, Access::Open, summary)
    }

    pub(crate) fn runner(path: &'static str, summary: &'static str) -> Self {
        Self::new(Method::POST, path, Access::Runner, summary)
    }

    pub(crate) fn run(method: Method, path: &'static str, summary: &'static str) -> Self {
        Self::new(method, path, Access::Run, summary)
    }

    pub(crate) fn api(method: Method, path: &'static str, reach: Reach, summary: &'static str) -> Self {
        Self::new(method, path, Access::Api(reach), summary)
    }

    pub(crate) fn size(mut self, size: BodySize) -> Self {
        self.size = size;
        self
    }

    /// The JSON body that it takes.
    pub(crate) fn takes<T: JsonSchema>(mut self) -> Self {
        self.body = Some(|generator| generator.subschema_for::<T>());
        self
    }

    /// A JSON answer.
    pub(crate) fn answers<T: JsonSchema>(mut self, status: StatusCode) -> Self {
        self.answers.push(Documented {
            status,
            content_type: "application/json",
            schema: Some(|generator| generator.subschema_for::<T>()),
        });
        self
    }

    /// An answer that is a stream of another content type.
    pub(crate) fn streams(mut self, content_type: &'static str) -> Self {
        self.answers.push(Documented { status: StatusCode::OK, content_type, schema: None });
        self
    }

    /// An answer without a body.
    pub(crate) fn empty(mut self, status: StatusCode) -> Self {
        self.answers.push(Documented { status, content_type: "", schema: None });
        self
    }

    pub(crate) fn query(mut self, name: &'static str, description: &'static str) -> Self {
        self.parameters.push(Parameter { name, header: false, description });
        self
    }

    pub(crate) fn header(mut self, name: &'static str, description: &'static str) -> Self {
        self.parameters.push(Parameter { name, header: true, description });
        self
    }

    /// Marks a route whose engine does not exist yet.
    pub(crate) fn later(mut self) -> Self {
        self.later = true;
        self
    }

    fn filter(&self) -> MethodFilter {
        match self.method {
            Method::GET => MethodFilter::GET,
            Method::PUT => MethodFilter::PUT,
            Method::PATCH => MethodFilter::PATCH,
            Method::DELETE => MethodFilter::DELETE,
            _ => MethodFilter::POST,
        }
    }
}

/// Routes and their handlers.
pub(crate) struct Table {
    state: Option<State>,
    router: Router<State>,
    routes: Vec<Route>,
}

impl Table {
    /// A table that serves requests.
    pub(crate) fn serving(state: State) -> Self {
        Self { state: Some(state), router: Router::new(), routes: Vec::new() }
    }

    /// A table that only describes.
    pub(crate) fn describing() -> Self {
        Self { state: None, router: Router::new(), routes: Vec::new() }
    }

    /// Adds a route.
    pub(crate) fn add<H, T>(&mut self, route: Route, handler: H)
    where
        H: Handler<T, State>,
        T: 'static,
    {
        if let Some(state) = &self.state {
            let mut method = on(route.filter(), handler);
            if matches!(route.access, Access::Api(_)) && route.method != Method::GET {
                let state = state.clone();
                method = method.layer(from_fn(move |request: Request, next: Next| {
                    idempotency::layer(state.clone(), request, next)
                }));
            }
            let limit = BodyLimit(route.size.limit(&state.config().limits));
            method = method.layer(axum::Extension(limit));
            let state = state.clone();
            let access = route.access;
            method = method.layer(from_fn(move |request: Request, next: Next| {
                guard(state.clone(), access, request, next)
            }));
            let router = std::mem::take(&mut self.router);
            self.router = router.route(route.path, method);
        }
        self.routes.push(route);
    }

    /// The routes, in order of their addition.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The router over all routes. Paths and methods that no route has get an
    /// envelope too.
    pub(crate) fn into_router(self) -> Router {
        let router = self
            .router
            .method_not_allowed_fallback(|method: Method| async move {
                Failure::new(
                    trestle_contract::ErrorCode::MethodNotAllowed,
                    format!("the method {method} does not exist on this path"),
                )
            })
            .fallback(|uri: http::Uri| async move { Failure::not_found("path", uri.path()) });
        match self.state {
            Some(state) => router.with_state(state),
            None => Router::new(),
        }
    }
}
