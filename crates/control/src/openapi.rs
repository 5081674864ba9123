//! The protocol in OpenAPI 3.1, made from the routes and the types of their bodies.

use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value, json};

use crate::request::{
    AccessBody, ApplyBody, DiskBody, DrainBody, LogBody, ROUTES, SendBody, SizeBody, TargetBody,
};

fn schema<T: JsonSchema>() -> Value {
    let mut schema = schema_for!(T).to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
    }
    schema
}

/// Returns the description of the protocol.
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameters: Vec<Value> = names
            .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
            .collect();
        let mut operation = json!({
            "summary": route.summary,
            "parameters": parameters,
            "responses": {
                "200": { "description": "done" },
                "default": { "description": "refused; nothing has changed", "content": { "application/json": {
                    "schema": { "type": "object", "required": ["error"], "properties": { "error": { "type": "string" } } }
                } } }
            }
        });
        if let Some(body) = route.body {
            let schema = json!({ "$ref": format!("#/components/schemas/{body}") });
            operation["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Control of a Roundtrip target", "version": "1" },
        "paths": paths,
        "components": { "schemas": {
            "TargetBody": schema::<TargetBody>(),
            "DiskBody": schema::<DiskBody>(),
            "SizeBody": schema::<SizeBody>(),
            "AccessBody": schema::<AccessBody>(),
            "SendBody": schema::<SendBody>(),
            "LogBody": schema::<LogBody>(),
            "ApplyBody": schema::<ApplyBody>(),
            "DrainBody": schema::<DrainBody>(),
        } }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_has_a_schema() {
        let document = document();
        for route in &ROUTES {
            let operation = &document["paths"][route.path][route.method.to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.summary);
            if let Some(body) = route.body {
                assert!(document["components"]["schemas"][body]["properties"].is_object(), "{body}");
            }
        }
    }
}
