//! The OpenAPI document, made from the table of routes.

use http::Method;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use trestle_contract::error::ErrorEnvelope;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, LicenseBuilder, ObjectBuilder,
    OpenApiBuilder, PathItem, Ref, Required, ResponseBuilder, Type,
};

use crate::auth::Access;
use crate::router;
use crate::routes::{BodySize, Route, SchemaOf, Table};

/// The document of all surfaces, as committed in `docs/openapi.json`.
#[must_use]
pub fn openapi() -> Value {
    let mut table = Table::describing();
    router::add_all(&mut table);
    let mut schemas = Schemas::new();
    let mut paths = PathsBuilder::new();
    for route in table.routes() {
        let item = PathItem::new(method(&route.method), operation(route, &mut schemas));
        paths = paths.path(route.path.replace("{*", "{"), item);
    }
    let mut components = ComponentsBuilder::new();
    for (name, description) in [
        ("runner", "The standing token of a runner."),
        ("run", "The run token of one run, as long as its lease lives."),
        ("api", "The administrator's token, or the API token of a run."),
    ] {
        components = components.security_scheme(
            name,
            SecurityScheme::Http(
                HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build(),
            ),
        );
    }
    let document = OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Trestle")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(
                    "The control plane: the pool API and the Runner Control API under \
                     /runner/v1, the public API under /v1.",
                ))
                .license(Some(LicenseBuilder::new().name("Apache-2.0").build()))
                .build(),
        )
        .paths(paths.build())
        .components(Some(components.build()))
        .build();
    let mut document = serde_json::to_value(&document).unwrap_or_default();
    // Schemas come from the wire types themselves. They are put in as they
    // are, because the typed document cannot express all of them.
    if let Some(components) = document["components"].as_object_mut() {
        components.insert("schemas".to_owned(), Value::Object(schemas.into_map()));
    }
    document
}

fn method(method: &Method) -> HttpMethod {
    match *method {
        Method::GET => HttpMethod::Get,
        Method::PUT => HttpMethod::Put,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Post,
    }
}

struct Schemas {
    generator: schemars::SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self { generator: settings.into_generator() }
    }

    /// The name under which a schema is found in the document. A schema that
    /// has no name of its own gets the one given.
    fn name(&mut self, schema: SchemaOf, fallback: &str) -> String {
        let value = schema(&mut self.generator).to_value();
        let named =
            value["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).map(str::to_owned);
        named.unwrap_or_else(|| {
            self.generator.definitions_mut().insert(fallback.to_owned(), value);
            fallback.to_owned()
        })
    }

    fn into_map(mut self) -> Map<String, Value> {
        self.generator.take_definitions(true)
    }
}

/// An identifier of the operation, made from method and path.
fn operation_id(route: &Route) -> String {
    let mut id = route.method.as_str().to_ascii_lowercase();
    for part in route.path.split(['/', '-', '{', '}', '*']).filter(|part| !part.is_empty()) {
        let mut characters = part.chars();
        if let Some(first) = characters.next() {
            id.extend(first.to_uppercase());
            id.push_str(characters.as_str());
        }
    }
    id
}

fn tag(route: &Route) -> &'static str {
    match route.access {
        Access::Runner => "pool",
        Access::Run => "control",
        Access::Api(_) => "api",
        Access::Open if route.path == "/runner/v1/register" => "pool",
        Access::Open => "open",
    }
}

fn operation(route: &Route, schemas: &mut Schemas) -> OperationBuilder {
    let id = operation_id(route);
    let mut operation =
        OperationBuilder::new().operation_id(Some(id.clone())).summary(Some(route.summary)).tag(tag(route));
    let security = match route.access {
        Access::Open => None,
        Access::Runner => Some("runner"),
        Access::Run => Some("run"),
        Access::Api(_) => Some("api"),
    };
    if let Some(name) = security {
        operation = operation.security(SecurityRequirement::new(name, Vec::<String>::new()));
    }
    for name in path_parameters(route.path) {
        operation = operation.parameter(parameter(name, ParameterIn::Path, Required::True, None));
    }
    for extra in &route.parameters {
        let place = if extra.header { ParameterIn::Header } else { ParameterIn::Query };
        operation =
            operation.parameter(parameter(extra.name, place, Required::False, Some(extra.description)));
    }
    if let Some(body) = route.body {
        let name = schemas.name(body, &format!("{id}Request"));
        operation = operation.request_body(Some(
            RequestBodyBuilder::new()
                .content("application/json", json(&name))
                .required(Some(Required::True))
                .build(),
        ));
    } else if route.size == BodySize::Streamed {
        operation = operation.request_body(Some(
            RequestBodyBuilder::new()
                .content("application/octet-stream", ContentBuilder::new().build())
                .required(Some(Required::True))
                .build(),
        ));
    }
    for answer in &route.answers {
        let mut response = ResponseBuilder::new().description(answer.status.canonical_reason().unwrap_or(""));
        if let Some(schema) = answer.schema {
            let name = schemas.name(schema, &format!("{id}Response"));
            response = response.content(answer.content_type, json(&name));
        } else if !answer.content_type.is_empty() {
            response = response.content(answer.content_type, ContentBuilder::new().build());
        }
        operation = operation.response(answer.status.as_str(), response.build());
    }
    let error = schemas.name(|generator| generator.subschema_for::<ErrorEnvelope>(), "ErrorEnvelope");
    operation.response(
        "default",
        ResponseBuilder::new()
            .description(if route.later { "Not available yet, or refused" } else { "Refused or failed" })
            .content("application/json", json(&error))
            .build(),
    )
}

fn json(name: &str) -> utoipa::openapi::Content {
    ContentBuilder::new().schema(Some(Ref::from_schema_name(name))).build()
}

fn parameter(
    name: &str,
    place: ParameterIn,
    required: Required,
    description: Option<&str>,
) -> utoipa::openapi::path::Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(description)
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).build()))
        .build()
}

/// Names of the parameters in a path.
pub(crate) fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| name.trim_start_matches('*'))
}
