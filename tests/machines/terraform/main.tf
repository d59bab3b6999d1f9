# A function with all that Terraform's provider can give it here, and what stands around it. The address is in
# AWS_ENDPOINT_URL.
terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}

provider "aws" {
  skip_metadata_api_check = true
  s3_use_path_style       = true
}

resource "aws_iam_role" "app" {
  name               = "app"
  assume_role_policy = jsonencode({ Version = "2012-10-17", Statement = [] })
}

resource "aws_iam_role_policy" "app" {
  role = aws_iam_role.app.id
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "s3:GetObject", Resource = "${aws_s3_bucket.data.arn}/*" }]
  })
}

resource "aws_s3_bucket" "data" {
  bucket = "data"
}

resource "aws_s3_object" "data" {
  bucket  = aws_s3_bucket.data.bucket
  key     = "key"
  content = "body"
}

resource "aws_sqs_queue" "jobs" {
  name = "jobs"
}

resource "aws_sfn_state_machine" "machine" {
  name     = "machine"
  role_arn = aws_iam_role.app.arn
  definition = jsonencode({
    QueryLanguage = "JSONata"
    StartAt       = "Call"
    States        = { Call = { Type = "Task", Resource = aws_lambda_function.app.arn, End = true } }
  })
}

resource "aws_lambda_layer_version" "shared" {
  layer_name          = "shared"
  filename            = "layer.zip"
  source_code_hash    = filebase64sha256("layer.zip")
  compatible_runtimes = ["python3.11"]
  license_info        = "MIT"
}

resource "aws_lambda_function" "app" {
  function_name    = "app"
  filename         = "code.zip"
  source_code_hash = filebase64sha256("code.zip")
  role             = aws_iam_role.app.arn
  handler          = "app.handler"
  runtime          = "python3.11"
  layers           = [aws_lambda_layer_version.shared.arn]
  publish          = true
}

resource "aws_lambda_alias" "live" {
  name             = "live"
  function_name    = aws_lambda_function.app.function_name
  function_version = aws_lambda_function.app.version
}

resource "aws_lambda_permission" "bucket" {
  statement_id  = "bucket"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.app.function_name
  qualifier     = aws_lambda_alias.live.name
  principal     = "s3.amazonaws.com"
  source_arn    = aws_s3_bucket.data.arn
}

resource "aws_lambda_function_url" "app" {
  function_name      = aws_lambda_function.app.function_name
  authorization_type = "AWS_IAM"
  cors {
    allow_origins = ["https://allowed.example"]
    max_age       = 60
  }
}

resource "aws_lambda_permission" "url" {
  statement_id           = "url"
  action                 = "lambda:InvokeFunctionUrl"
  function_name          = aws_lambda_function.app.function_name
  principal              = "arn:aws:iam::000000000000:role/caller"
  function_url_auth_type = "AWS_IAM"
}

output "url" {
  value = aws_lambda_function_url.app.function_url
}
