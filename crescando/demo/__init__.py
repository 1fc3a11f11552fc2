"""The demonstration: real flights, real failures, and every answer checked."""
