# A function with all that Terraform's provider can give it here; the emulator's address and keys come as variables.
terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}

variable "endpoint" {}

provider "aws" {
  region                      = "us-east-1"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
  endpoints {
    lambda = var.endpoint
  }
}

resource "aws_lambda_layer_version" "shared" {
  layer_name          = "shared"
  filename            = "layer.zip"
  source_code_hash    = filebase64sha256("layer.zip")
  compatible_runtimes = ["python3.11"]
  license_info        = "MIT"
}

resource "aws_lambda_layer_version_permission" "shared" {
  layer_name     = aws_lambda_layer_version.shared.layer_arn
  version_number = aws_lambda_layer_version.shared.version
  principal      = "123456789012"
  action         = "lambda:GetLayerVersion"
  statement_id   = "account"
}

resource "aws_lambda_function" "app" {
  function_name    = "app"
  filename         = "code.zip"
  source_code_hash = filebase64sha256("code.zip")
  role             = "arn:aws:iam::000000000000:role/app"
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
  source_arn    = "arn:aws:s3:::bucket"
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

resource "aws_lambda_runtime_management_config" "app" {
  function_name     = aws_lambda_function.app.function_name
  update_runtime_on = "FunctionUpdate"
}

resource "aws_lambda_function_recursion_config" "app" {
  function_name  = aws_lambda_function.app.function_name
  recursive_loop = "Allow"
}

output "url" {
  value = aws_lambda_function_url.app.function_url
}
